"""Pins: the measurements of machines that may stand behind the model.

Anyone can start their own system on genuine hardware. So a quote alone only says that some machine
is closed. A file of pins, chosen by the operator of the bot, says which machines are accepted:

    {"type": "signal-bot-model-pins", "v": 1,
     "gateway": {"systems": [{"label": "2026-06-29", "mrtd": "<48 bytes, hex>",
                              "rtmr0": "...", "rtmr1": "...", "rtmr2": "..."}],
                 "applications": [{"compose_hash": "<32 bytes, hex>"}]},
     "model": {"systems": [...], "applications": [{"app_id": "<20 bytes, hex>"}]},
     "kms_ids": ["<public key of the key service's CA, hex>"]}

An application is accepted by the hash of its configuration, which every version changes, or by its
id, which stays: then the key service decides which versions may run. A model's own endpoint has no
`gateway`. Checks: `os`, `application`, `key_provider`.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from bot.attestation.checks import Check, claimed, not_checked, proven_if
from bot.attestation.errors import MalformedEvidence
from bot.attestation.event_log import KEY_SERVICE
from bot.attestation.quote import OsMeasurement
from bot.attestation.strict_json import Hash, KeyId, StrictModel, canonical_json, read
from bot.attestation.tdx_guest import TdFindings
from bot.errors import SettingsError

MAX_PINS_BYTES: Final = 64 * 1024

Part = Literal["gateway", "model"]

_AppId = Annotated[str, Field(pattern="^[0-9a-f]{40}$")]


_Application = Annotated[
    dict[Literal["compose_hash"], Hash] | dict[Literal["app_id"], _AppId], Field(min_length=1)
]


class PinnedPart(StrictModel):
    """Accepted systems and applications of one part."""

    systems: Annotated[list[OsMeasurement], Field(min_length=1, max_length=100)]
    applications: Annotated[list[_Application], Field(min_length=1, max_length=100)]


class ModelPins(StrictModel):
    """Accepted machines; the docstring of the module describes the fields."""

    type: Literal["signal-bot-model-pins"]
    v: Annotated[int, Field(ge=1, le=1)]  # Literal[1] would also take true
    gateway: PinnedPart | None = None
    model: PinnedPart
    kms_ids: Annotated[list[KeyId], Field(min_length=1, max_length=100)]

    @classmethod
    def parse(cls, text: str | bytes) -> "ModelPins":
        """Read pins."""
        if len(text) > MAX_PINS_BYTES:
            raise MalformedEvidence("the pins are longer than pins can be")
        return read(cls, text, "the file of pins")

    def text(self) -> str:
        """Return them as one line of canonical JSON."""
        return canonical_json(self.model_dump(exclude_none=True))


def read_pins(setting: str | None) -> ModelPins | None:
    """Return the pins of `ATTESTATION__MODEL_PINS`, a file or its JSON; None if it is not set.

    Raises:
        SettingsError: the file cannot be read, or holds no pins.
    """
    if setting is None:
        return None
    try:
        if setting.startswith("{"):
            return ModelPins.parse(setting)
        with Path(setting).open("rb") as file:
            return ModelPins.parse(file.read(MAX_PINS_BYTES + 1))
    except OSError as error:
        raise SettingsError(f"ATTESTATION__MODEL_PINS: {setting}: {error.strerror}") from None
    except MalformedEvidence as error:
        raise SettingsError(f"ATTESTATION__MODEL_PINS: {error}") from None


def pins_sha256(text: str) -> str:
    """Return the hash in hex of the exact text, by which a statement names pins."""
    return hashlib.sha256(text.encode()).hexdigest()


def pin_checks(part: Part, found: TdFindings, pins: ModelPins | None) -> tuple[Check, ...]:
    """Compare one machine with the pins; without pins, only show its measurements."""
    quote, boot = found.quote, found.boot
    if boot is None:
        names = ("os", "application", "key_provider")
        return tuple(not_checked(name, "what started cannot be read", asked=True) for name in names)
    compose_hash, app_id = boot.compose_hash.hex(), boot.app_id.hex()
    named = f"compose hash {compose_hash}, app id {app_id}"
    if pins is None:
        why = "nothing is pinned to compare it with"
        system = f"firmware {quote.mr_td.hex()[:16]}… and what it started"
        return (
            claimed("os", f"{system} call themselves the model's: {why}"),
            claimed("application", f"{named}: {why}"),
            claimed("key_provider", f"{boot.key_provider}: {why}"),
        )
    pinned = pins.gateway if part == "gateway" else pins.model
    systems = [one.label for one in pinned.systems if one.matches(quote)] if pinned else []
    accepted = pinned.applications if pinned else []
    return (
        proven_if(
            bool(systems),
            "os",
            f"the system below is a pinned one: {systems[0] if systems else ''}",
            "the system below the machine's programs is not a pinned one",
        ),
        proven_if(
            any(one in ({"compose_hash": compose_hash}, {"app_id": app_id}) for one in accepted),
            "application",
            "the application is a pinned one",
            f"the application is not a pinned one: {named}",
        ),
        proven_if(
            boot.key_provider == KEY_SERVICE and boot.key_provider_id in pins.kms_ids,
            "key_provider",
            "the machine's keys come from a pinned key service",
            "the machine's keys do not come from a pinned key service",
        ),
    )


_OF_THE_GATEWAY: Final = """
f06dfda6dce1cf904d4e2bab1dc370634cf95cefa2ceb2de2eee127c9382698090d7a4a13e14c536ec6c9c3c8fa87077
fb14dc139f33d6fcf474bc8332cac001259fb31cfbcb6b34d4ceeb552a2c4466884a0cbde45ad98a05c5c060c23ad65a
a7b523278d4f914ee8df0ec80cd1c3d498cbf1152b0c5eaf65bad9425072874a3fcf891e8b01713d3d9937e3e0d26c15
24847f5c5a2360d030bc4f7b8577ce32e87c4d051452c937e91220cab69542daef83433947c492b9c201182fc9769bbe
da9a3d5cc196a1a76d953fb27069be428ddf60a1ce10b0534c3cf968d3053fde
f550fdfb4eb8ad787c1bcd423f091cbb4a4431ae
"""
_OF_MODELS: Final = """
b24d3b24e9e3c16012376b52362ca09856c4adecb709d5fac33addf1c47e193da075b125b6c364115771390a5461e217
bc122d143ab768565ba5c3774ff5f03a63c89a4df7c1f5ea38d3bd173409d14f8cbdcc36d40e703cccb996a9d9687590
c0445b704e4c48139496ae337423ddb1dcee3a673fd5fb60a53d562f127d235f11de471a7b4ee12c9027c829786757dc
564622c7ddc55a53272cc9f0956d29b3f7e0dd18ede432720b71fd89e5b5d76cb0b99be7b7ff2a6a92b89b6b01643135
9b69bb1698bacbb6985409a2c272bcb892e09cdcea63d5399c6768b67d3ff677
2c0a0c96cb6dbd659bf1446e2f3fce58172ff91b
"""
"""MRTD, RTMR0 to 2, id of the image, id of the application, from genuine quotes."""

_KEY_SERVICE: Final = (
    "3059301306072a8648ce3d020106082a8648ce3d03010703420004228f800590a10442cba9d0e6adb2fa9f195eea"
    "9e75e23dd35990d52b59dda2415a63674c38adebde4ffd4d4b265bf818985933820c8053cee3ce29b5fb0fbcbc"
)

KNOWN: Final[Mapping[str, str]] = {
    **dict.fromkeys(_OF_THE_GATEWAY.split(), "seen on NEAR AI's gateway, April to June 2026"),
    **dict.fromkeys(_OF_MODELS.split(), "seen on NEAR AI's model machines, April to June 2026"),
    _KEY_SERVICE: "seen on all of NEAR AI's machines, April to June 2026",
}
"""Words for known measurements in hex, to compare new pins with. No check rests on them."""
