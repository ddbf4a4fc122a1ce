"""All settings as one frozen tree of sections; it refuses unknown names."""

import re
import unicodedata
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from bot.config.llm import LlmSettings
from bot.errors import SettingsError
from tools.settings import (
    RESERVED_NAMES,
    TOOL_NAMES,
    HttpUrl,
    McpServer,
    Section,
    ToolsSettings,
    comma_separated,
    expecting,
)

EYES: Final = "\U0001f440"
MAX_EMOJI_CHARACTERS: Final = 10
MAX_PROFILE_NAME_CHARACTERS: Final = 26
MAX_PROFILE_ABOUT_CHARACTERS: Final = 140
"""Limits of Signal's apps for a name and for the line below it."""

EXAMPLE_NUMBER: Final = "+4915112345678"

_UNSEEN: Final = frozenset({"Cf", "Pd", "Zs"})
"""Unicode categories of direction marks, dashes and spaces."""


def phone_number(value: str) -> str:
    """Return a number as +4915112345678, also from `+49 (1511) 234-5678`.

    Raises:
        ValueError: the text is not a number in international form.
    """
    # A number copied from a phone has invisible marks around it.
    plain = "".join(
        c for c in value if c not in " ()-./" and unicodedata.category(c) not in _UNSEEN
    )
    if not re.fullmatch(r"\+[1-9][0-9]{6,14}", plain):
        raise ValueError(f"must be a number in international form, such as {EXAMPLE_NUMBER}")
    return plain


def person(value: str) -> str:
    """Return a phone number or an ACI in one spelling; raises ValueError."""
    if re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", value):
        return value.lower()
    with expecting(f"must be numbers ({EXAMPLE_NUMBER}) or ACI uuids, separated by commas"):
        return phone_number(value)


PhoneNumber = Annotated[str, AfterValidator(phone_number)]


def _signal_url(value: str) -> str:
    expected = "must be spawn:, unix:/path/to/socket, tcp://host:port or http://host:port"
    with expecting(expected):
        url = urlsplit(value)
        fits = {
            "spawn": value == "spawn:",
            "unix": url.path.startswith("/") and not url.netloc,
            "tcp": bool(url.hostname and url.port) and not url.path,
            "http": bool(url.hostname) and url.port != 0,
            "https": bool(url.hostname) and url.port != 0,
        }
    if not fits.get(url.scheme, False):
        raise ValueError(expected)
    return value.rstrip("/")


class SignalSettings(Section):
    """The Signal side, and the bot's account."""

    url: Annotated[str, AfterValidator(_signal_url)] = "spawn:"
    phone_number: PhoneNumber
    trust: Literal["tofu", "always", "verified"] = "tofu"
    data_dir: Path | None = Field(None, description="signal-cli's own folder")
    registration_lock: bool | None = Field(None, description="with a PIN; default: in a TEE")


People = Annotated[
    frozenset[Annotated[str, AfterValidator(person)]], BeforeValidator(comma_separated)
]


class AccessSettings(Section):
    """The people who may talk to the bot."""

    policy: Literal["open", "allowlist", "pairing"] = "pairing"
    allowed: People = frozenset()
    admins: People = frozenset()
    groups: Literal["mention", "always", "off"] = "mention"
    messages_per_minute: int = Field(20, ge=1)
    tokens_per_day: int = Field(0, ge=0, description="of each person; 0 = no bound")
    note_to_self: bool = False


def _reaction(value: str | None) -> str | None:
    """Parse an emoji, or a yes, which means 👀."""
    if value is None or value.casefold() in {"false", "no", "off", "0"}:
        return None
    if value.casefold() in {"true", "yes", "on", "1"}:
        return EYES
    if value.isascii() or len(value) > MAX_EMOJI_CHARACTERS:
        raise ValueError("must be one emoji, such as 👀, or true or false")
    return value


class BotSettings(Section):
    """The appearance of the bot."""

    system_prompt: str | None = None
    profile_name: Annotated[str, Field(max_length=MAX_PROFILE_NAME_CHARACTERS)] | None = None
    profile_about: Annotated[str, Field(max_length=MAX_PROFILE_ABOUT_CHARACTERS)] | None = None
    profile_picture: Path | None = None
    ack_reaction: Annotated[str | None, AfterValidator(_reaction)] = None
    read_receipts: bool = False
    summaries: bool = True


class StoreSettings(Section):
    """The file of the conversations."""

    path: Path = Path("data/conversations.db")
    key: SecretStr | None = None
    key_source: Literal["setting", "dstack"] = "setting"
    key_may_be_lost: bool = False
    retention_days: int = Field(30, ge=0, le=36_500)

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.key is not None and self.key_source == "dstack":
            raise ValueError(
                "has a KEY, which KEY_SOURCE=dstack derives by itself; set one of them"
            )
        return self


def _server_name(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_]{0,31}", value):
        raise ValueError("needs a name of letters, digits and underscores, up to 32")
    if value in RESERVED_NAMES:
        raise ValueError("has the name of a built-in tool; choose another")
    if any(name.startswith(f"{value}_") for name in TOOL_NAMES):
        # Its tool `search` would be `web_search` otherwise, and trusted like the built-in one.
        raise ValueError("has a name that built-in tools begin with; choose another")
    return value


class McpSettings(Section):
    """MCP servers by names that the operator chooses."""

    servers: dict[Annotated[str, AfterValidator(_server_name)], McpServer] = Field(
        default_factory=dict
    )


class AttestationSettings(Section):
    """The trusted execution environment, and proof of the model."""

    dstack_socket: Path = Path("/var/run/dstack.sock")
    pccs_url: HttpUrl = "https://pccs.phala.network"
    key_origin: Literal["generated-in-tee", "imported"] = "imported"
    model_policy: Literal["off", "warn", "require"] = "warn"
    model_pins: str | None = Field(None, description="a file, or its JSON")
    e2ee: bool = False

    @model_validator(mode="after")
    def _a_key_to_encrypt_to(self) -> Self:
        if self.e2ee and self.model_policy == "off":
            raise ValueError("has E2EE, which needs MODEL_POLICY=warn or require to find the key")
        return self

    @property
    def has_agent(self) -> bool:
        """Whether the socket of a guest agent exists and may be looked at."""
        try:
            return self.dstack_socket.is_socket()
        except OSError:
            return False


def _listen_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if value and (not host or not port.isdecimal() or int(port) > 65535):
        raise ValueError("must be host:port, such as 127.0.0.1:8081, or empty")
    return value


class HealthSettings(Section):
    """The address of health and metrics."""

    listen: Annotated[str, AfterValidator(_listen_address)] = "127.0.0.1:8081"


class LogSettings(Section):
    """The level and the format of the log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"


class Settings(Section):
    """All settings. `load_settings` makes them."""

    signal: SignalSettings
    llm: LlmSettings = LlmSettings()
    bot: BotSettings = BotSettings()
    store: StoreSettings = StoreSettings()
    tools: ToolsSettings = ToolsSettings()
    mcp: McpSettings = McpSettings()
    access: AccessSettings = AccessSettings()
    attestation: AttestationSettings = AttestationSettings()
    health: HealthSettings = HealthSettings()
    log: LogSettings = LogSettings()
    sandbox: Literal["required", "available"] | None = Field(
        None, description="the kernel's walls around sandboxes; required in a TEE"
    )

    @property
    def model_has_to_prove(self) -> bool:
        """Whether the model's endpoint has to prove its readers.

        Without TLS no key can identify the other side, and other APIs have no such proof.
        """
        over_tls = urlsplit(self.llm.base_url).scheme == "https"
        speaks_it = self.llm.dialect == "openai"
        return over_tls and speaks_it and self.attestation.model_policy != "off"

    def locks_registration(self, *, in_tee: bool) -> bool:
        """Whether the bot holds a registration lock, whose PIN the encrypted store keeps."""
        wanted = self.signal.registration_lock
        is_encrypted = self.store.key is not None or self.store.key_source != "setting"
        if wanted and not is_encrypted:
            raise SettingsError("SIGNAL__REGISTRATION_LOCK: needs STORE__KEY, as the PIN is stored")
        return in_tee and is_encrypted if wanted is None else wanted

    def with_default_model(self, name: str) -> Self:
        """Return the settings as they would be if a further model were the default one."""
        return self.model_copy(update={"llm": self.llm.of(name)})

    @property
    def workspaces_folder(self) -> Path:
        """The folder with the folders of chats."""
        return self.tools.workspace.path or self.store.path.parent / "workspaces"

    @property
    def sandbox_required(self) -> bool:
        """Whether a sandbox without its essential walls may run nothing."""
        if self.sandbox is None:
            return self.attestation.has_agent
        return self.sandbox == "required"
