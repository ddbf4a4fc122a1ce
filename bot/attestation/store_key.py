"""The store's key, from the machine instead of from the operator.

    K = HKDF-SHA256(GetKey("signal-bot/db/v1"), no salt, info "sqlcipher", 32 bytes)

GetKey is bound to the application, not to its code: the key survives an upgrade, and whoever can
have an upgrade approved can read with it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import BaseModel, ValidationError

from bot.attestation.dstack import DstackAgent
from bot.attestation.errors import AgentError
from bot.errors import SettingsError

KEY_PATH: Final = "signal-bot/db/v1"
KEY_BYTES: Final = 32

LOST: Final[Mapping[str, str]] = MappingProxyType(
    {
        "none": "this machine's keys are gone at its next boot, and with them every conversation",
        "local": "this machine's keys change with the next upgrade and with the hardware, and every"
        " conversation is lost then",
        "tpm": "this machine's keys end with this instance, and every conversation is lost when it"
        " is replaced",
    }
)
"""By key provider, what becomes of the conversations. Only `kms` keeps its keys."""

LOST_PERHAPS: Final = (
    "this machine does not say where its keys come from, so every conversation may be lost at the"
    " next boot"
)


async def derive_store_key(agent: DstackAgent, *, may_be_lost: bool) -> str:
    """Return the key of the conversation store, in hexadecimal.

    Args:
        agent: asked for the application's key, and where that comes from.
        may_be_lost: whether a key will do that does not survive.

    Raises:
        SettingsError: the key would be lost, and it may not be.
        AgentError: the agent is not there, does not answer, or answers nonsense; names the setting.
    """
    try:
        if not may_be_lost:
            _refuse_what_is_lost(_provider((await agent.info()).key_provider_info))
        application_key = await agent.key(KEY_PATH)
    except AgentError as error:
        raise AgentError(f"STORE__KEY_SOURCE: {error}") from None
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=b"sqlcipher").derive(application_key).hex()


class _KeyProviderInfo(BaseModel):
    name: str


def _provider(key_provider_info: str) -> str:
    """Return the provider's kind; dstack calls the local one after its hardware (`local-sgx`)."""
    try:
        name = _KeyProviderInfo.model_validate_json(key_provider_info).name
    except ValidationError:
        return ""
    return "local" if name.startswith("local") else name


def _refuse_what_is_lost(provider: str) -> None:
    if provider != "kms":
        raise SettingsError(
            f"STORE__KEY_SOURCE: dstack would not keep the key: {LOST.get(provider, LOST_PERHAPS)}."
            " Run it with a key provider of the kind kms, or set STORE__KEY_MAY_BE_LOST=true."
        )
