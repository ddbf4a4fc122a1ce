"""Which machines may stand behind the model: measurements that whoever runs the bot accepts.

Anybody can start a system of his own on genuine hardware. So a quote alone says only that some
machine is closed; which one it has to be, a file of pins says:

    {"type": "signal-bot-model-pins", "v": 1,
     "gateway": {"systems": [{"label": "2026-06-29", "mrtd": "<48 bytes, hex>",
                              "rtmr0": "...", "rtmr1": "...", "rtmr2": "..."}],
                 "applications": [{"compose_hash": "<32 bytes, hex>"}]},
     "model": {"systems": [...], "applications": [{"app_id": "<20 bytes, hex>"}]},
     "kms_ids": ["<public key of the key service's CA, hex>"]}

An application is accepted by the hash of its configuration, which every new version changes, or by
its id, which stays: then the key service decides which versions may run. There is no `gateway`
where a model's own endpoint is asked.
Checks: `os`, `application`, `key_provider`.
"""

import hashlib
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from bot.attestation.canonical import canonical_json
from bot.attestation.checks import Check, claimed, not_checked, proven_if
from bot.attestation.errors import MalformedEvidence
from bot.attestation.event_log import KEY_SERVICE, BootClaims
from bot.attestation.quote import TdQuote
from bot.attestation.strict_json import StrictModel, VersionOne, read
from bot.attestation.systems import OsMeasurement
from bot.attestation.tdx_guest import TdFindings

MAX_PINS_BYTES: Final = 64 * 1024

Part = Literal["gateway", "model"]

_NOT_PINNED: Final = "nothing is pinned to compare it with"

_Hash = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
_AppId = Annotated[str, StringConstraints(pattern="^[0-9a-f]{40}$")]
_KeyId = Annotated[str, StringConstraints(pattern="^([0-9a-f]{2}){1,1024}$")]


class Application(StrictModel):
    """One application, by the hash of its configuration or by its id."""

    compose_hash: _Hash | None = None
    app_id: _AppId | None = None

    @model_validator(mode="after")
    def _one_name(self) -> Self:
        if (self.compose_hash is None) == (self.app_id is None):
            raise ValueError("needs compose_hash or app_id, and not both")
        return self

    def matches(self, boot: BootClaims) -> bool:
        """Whether this is what a machine says it has started."""
        return boot.compose_hash.hex() == self.compose_hash or boot.app_id.hex() == self.app_id


class PinnedPart(StrictModel):
    """What one part's machines may run."""

    systems: Annotated[list[OsMeasurement], Field(min_length=1, max_length=100)]
    applications: Annotated[list[Application], Field(min_length=1, max_length=100)]


class ModelPins(StrictModel):
    """What is accepted; see the module's docstring."""

    type: Literal["signal-bot-model-pins"]
    v: VersionOne
    gateway: PinnedPart | None = None
    model: PinnedPart
    kms_ids: Annotated[list[_KeyId], Field(min_length=1, max_length=100)]

    @classmethod
    def parse(cls, text: str | bytes) -> "ModelPins":
        """Read pins.

        Raises:
            MalformedEvidence: they are not pins, are of a newer version, or longer than 64 KiB.
        """
        if len(text) > MAX_PINS_BYTES:
            raise MalformedEvidence("the pins are longer than pins can be")
        return read(cls, text, "the file of pins")

    def text(self) -> str:
        """Return them as one line of canonical JSON."""
        return canonical_json(self.model_dump(exclude_none=True))

    def system(self, part: Part, quote: TdQuote) -> OsMeasurement | None:
        """Return the pinned system that a quote comes from, if it is one."""
        pinned = self._part(part)
        systems = pinned.systems if pinned else []
        return next((one for one in systems if one.matches(quote)), None)

    def accepts(self, part: Part, boot: BootClaims) -> bool:
        """Whether a machine of this part may run what it has started."""
        pinned = self._part(part)
        return pinned is not None and any(one.matches(boot) for one in pinned.applications)

    def _part(self, part: Part) -> PinnedPart | None:
        return self.gateway if part == "gateway" else self.model


def pins_sha256(text: str) -> str:
    """Return the hash by which a statement names pins, hex, of their exact text."""
    return hashlib.sha256(text.encode()).hexdigest()


def pin_checks(part: Part, found: TdFindings, pins: ModelPins | None) -> tuple[Check, ...]:
    """Compare one machine with the pins; without any, what it measures is only shown.

    Args:
        part: which machine it is.
        found: its verification.
        pins: what is accepted; None: nobody has said.
    """
    if found.quote is None or found.boot is None:
        why = "what started cannot be read"
        names = ("os", "application", "key_provider")
        return tuple(not_checked(name, why, asked=True) for name in names)
    if pins is None:
        return _unpinned(found.quote.mr_td, found.boot)
    quote, boot = found.quote, found.boot
    system = pins.system(part, quote)
    return (
        proven_if(
            system is not None,
            "os",
            f"the system below is a pinned one: {system.label if system else ''}",
            "the system below the machine's programs is none of the pinned ones",
        ),
        proven_if(
            pins.accepts(part, boot),
            "application",
            "the application is a pinned one",
            f"the application is none of the pinned ones: {_named(boot)}",
        ),
        proven_if(
            boot.key_provider == KEY_SERVICE and boot.key_provider_id in pins.kms_ids,
            "key_provider",
            "the machine's keys come from a pinned key service",
            "the machine's keys do not come from a pinned key service",
        ),
    )


def _unpinned(mr_td: bytes, boot: BootClaims) -> tuple[Check, ...]:
    system = f"firmware {mr_td.hex()[:16]}… and what it started"
    return (
        claimed("os", f"{system} call themselves the model's: {_NOT_PINNED}"),
        claimed("application", f"{_named(boot)}: {_NOT_PINNED}"),
        claimed("key_provider", f"{boot.key_provider}: {_NOT_PINNED}"),
    )


def _named(boot: BootClaims) -> str:
    return f"compose hash {boot.compose_hash.hex()}, app id {boot.app_id.hex()}"
