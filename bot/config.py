"""The settings tree: environment, `.env`, secret files, in that order; read once.

Every section is frozen and refuses unknown names. Errors name the setting as it is written in
the environment and what is expected, never a value.
"""

import difflib
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NestedSecretsSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings.exceptions import SettingsError as UnparsableSettings

from bot.errors import SettingsError
from bot.process.hardening import moved_variables
from tools.catalog import CATALOG
from tools.settings import FORECAST_URL, GEOCODING_URL

EYES: Final = "\U0001f440"
LONGEST_EMOJI_CHARACTERS: Final = 10

PROFILE_NAME_CHARACTERS: Final = 26
PROFILE_ABOUT_CHARACTERS: Final = 140
"""What Signal's apps take for a name and for the line below it."""

DELIMITER: Final = "__"
ANY_NAME: Final = "name"
"""Stands in a setting's name for a name that the operator chooses."""

EMPTY_MEANS_OFF: Final = frozenset({"health__listen"})
WITHOUT_SECTION: Final = frozenset({"sandbox"})
CONTAINER_SECRETS: Final = Path("/run/secrets")


@contextmanager
def _expecting(words: str) -> Iterator[None]:
    """Say what is expected in place of what urllib complains of, as it quotes the value."""
    try:
        yield
    except ValueError:
        raise ValueError(words) from None


def _signal_url(value: str) -> str:
    expected = "must be spawn:, unix:/path/to/socket, tcp://host:port or http://host:port"
    with _expecting(expected):
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


def _http_url(value: str) -> str:
    with _expecting("must be an http:// or https:// address"):
        url = urlsplit(value)
        port = url.port
    if url.scheme not in {"http", "https"} or not url.hostname or not _is_visible_ascii(value):
        raise ValueError("must be an http:// or https:// address")
    if port == 0 or not _is_name_or_ip(url.hostname):
        raise ValueError("must name a host, and a port from 1 to 65535 if any")
    return value.rstrip("/")


def _mcp_url(value: str) -> str:
    if value.startswith("unix:/") and not value.startswith("unix://"):
        return value
    try:
        return _http_url(value)
    except ValueError as error:
        raise ValueError(f"{error}, or unix:/path/to/socket") from None


def _is_name_or_ip(host: str) -> bool:
    if ":" not in host and not re.fullmatch(r"[\d.]+", host):
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _bearer_token(value: SecretStr) -> SecretStr:
    if not _is_visible_ascii(value.get_secret_value()):
        raise ValueError("must be ASCII without spaces or line breaks, as it goes into a header")
    return value


def _is_visible_ascii(value: str) -> bool:
    return re.fullmatch(r"[!-~]+", value) is not None


def _phone_number(value: str) -> str:
    if not re.fullmatch(r"\+[1-9]\d{6,14}", value):
        raise ValueError("must be a number in international form, such as +4915112345678")
    return value


def _listen_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if value and (not host or not port.isdecimal() or int(port) > 65535):
        raise ValueError("must be host:port, such as 127.0.0.1:8081, or empty")
    return value


def _reaction(value: str | None) -> str | None:
    """Read an emoji, or a plain yes, which is a pair of eyes."""
    if value is None or value.casefold() in {"false", "no", "off", "0"}:
        return None
    if value.casefold() in {"true", "yes", "on", "1"}:
        return EYES
    if value.isascii() or len(value) > LONGEST_EMOJI_CHARACTERS:
        raise ValueError("must be one emoji, such as 👀, or true or false")
    return value


def _split_list(value: object) -> object:
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def _person(value: str) -> str:
    if re.fullmatch(r"\+[1-9]\d{6,14}", value):
        return value
    if re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", value):
        return value.lower()
    raise ValueError("must be numbers (+4915112345678) or ACI uuids, separated by commas")


def _command_line(value: object) -> object:
    if not isinstance(value, str):
        return value
    with _expecting("must be a command line; a quotation mark is missing"):
        return tuple(shlex.split(value))


def _server_name(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_]{0,31}", value):
        raise ValueError("needs a name of letters, digits and underscores, up to 32")
    if value in CATALOG:
        raise ValueError("has the name of a built-in tool; choose another")
    return value


HttpUrl = Annotated[str, AfterValidator(_http_url)]
BearerToken = Annotated[SecretStr, AfterValidator(_bearer_token)]
People = Annotated[frozenset[Annotated[str, AfterValidator(_person)]], BeforeValidator(_split_list)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class SignalSettings(_Section):
    """Where the Signal side is and which account is the bot's."""

    url: Annotated[str, AfterValidator(_signal_url)] = "http://127.0.0.1:8080"
    phone_number: Annotated[str, AfterValidator(_phone_number)]
    trust: Literal["tofu", "always", "verified"] = "tofu"
    data_dir: Path | None = Field(None, description="signal-cli's own folder")


class LlmSettings(_Section):
    """The model's endpoint."""

    base_url: HttpUrl = "https://cloud-api.near.ai/v1"
    api_key: BearerToken | None = None
    model: str = "openai/gpt-oss-120b"
    timeout_seconds: float = Field(
        120, gt=0, allow_inf_nan=False, description="without a byte from the endpoint"
    )
    max_concurrency: int = Field(32, ge=1, le=10_000)
    context_tokens: int = Field(32_000, ge=1_000)
    vision: Literal["auto", "on", "off"] = "auto"
    transcription_model: str | None = None


class BotSettings(_Section):
    """How the bot presents itself."""

    system_prompt: str | None = None
    profile_name: Annotated[str, Field(max_length=PROFILE_NAME_CHARACTERS)] | None = None
    profile_about: Annotated[str, Field(max_length=PROFILE_ABOUT_CHARACTERS)] | None = None
    profile_picture: Path | None = None
    ack_reaction: Annotated[str | None, AfterValidator(_reaction)] = None
    read_receipts: bool = False
    settle_seconds: float = Field(1.5, ge=0, le=30, allow_inf_nan=False)


class StoreSettings(_Section):
    """Where conversations are kept, and for how long."""

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


class ToolSettings(_Section):
    """A tool that needs nothing."""

    enabled: bool = True


class WeatherSettings(_Section):
    """The tool `get_weather`; other addresses than the default are a self-hosted Open-Meteo's."""

    enabled: bool = True
    geocoding_url: HttpUrl = GEOCODING_URL
    forecast_url: HttpUrl = FORECAST_URL


class WebSearchSettings(_Section):
    """The tool `web_search`."""

    enabled: bool = True
    provider: Literal["brave", "duckduckgo"] = "brave"
    api_key: BearerToken | None = None
    url: HttpUrl | None = None
    max_results: int = Field(5, ge=1, le=10)


class ToolsSettings(_Section):
    """What the model may call."""

    enabled: bool = True
    max_tool_calls: int = Field(5, ge=0, le=100)
    timeout_seconds: float = Field(10, gt=0, le=600)
    calls_per_minute: int = Field(60, ge=1)
    calls_per_minute_total: int = Field(600, ge=1)
    audit_arguments: Literal["hash", "keep"] = "hash"
    calculator: ToolSettings = ToolSettings()
    current_time: ToolSettings = ToolSettings()
    weather: WeatherSettings = WeatherSettings()
    web_search: WebSearchSettings = WebSearchSettings()
    web_fetch: ToolSettings = ToolSettings()


class McpServerSettings(_Section):
    """One MCP server: a command, or the URL of one that runs already."""

    command: Annotated[tuple[str, ...], BeforeValidator(_command_line)] = ()
    env: dict[str, SecretStr] = {}
    url: Annotated[str, AfterValidator(_mcp_url)] | None = None
    token: BearerToken | None = None
    timeout_seconds: float = Field(30, gt=0, le=600)

    @model_validator(mode="after")
    def _one_way_to_it(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("needs COMMAND or URL, and not both")
        if self.token and not (self.url or "").startswith("http"):
            raise ValueError("has a TOKEN, which is for an http URL; a command gets ENV__NAME")
        return self


class McpSettings(_Section):
    """Programs that offer tools over the Model Context Protocol, by a name of the operator's."""

    servers: dict[Annotated[str, AfterValidator(_server_name)], McpServerSettings] = {}


class AccessSettings(_Section):
    """Who may talk to the bot."""

    policy: Literal["open", "allowlist", "pairing"] = "pairing"
    allowed: People = frozenset()
    admins: People = frozenset()
    groups: Literal["mention", "always", "off"] = "mention"
    messages_per_minute: int = Field(20, ge=1)
    note_to_self: bool = False


class AttestationSettings(_Section):
    """The trusted execution environment."""

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
        """Whether there is a guest agent's socket; one that may not be looked at is none."""
        try:
            return self.dstack_socket.is_socket()
        except OSError:
            return False


class HealthSettings(_Section):
    """Where health and metrics are served."""

    listen: Annotated[str, AfterValidator(_listen_address)] = "127.0.0.1:8081"


class LogSettings(_Section):
    """What is logged and how it looks."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"


class Settings(BaseSettings):
    """All settings. Made by `load_settings`."""

    model_config = SettingsConfigDict(
        env_nested_delimiter=DELIMITER,
        env_file=".env",
        env_file_encoding="utf-8",
        enable_decoding=False,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

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
    def sandbox_required(self) -> bool:
        """Whether nothing may run in a sandbox without its essential walls."""
        if self.sandbox is None:
            return self.attestation.has_agent
        return self.sandbox == "required"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources, the first that knows a setting wins."""
        secrets = NestedSecretsSettingsSource(
            file_secret_settings,
            secrets_dir=list(_secret_folders()),
            secrets_nested_delimiter=DELIMITER,
        )
        if isinstance(env_settings, EnvSettingsSource):
            moved = {name.lower(): value for name, value in moved_variables().items()}
            env_settings.env_vars = {**env_settings.env_vars, **moved}
        for source in (env_settings, dotenv_settings, secrets):
            if isinstance(source, EnvSettingsSource):
                source.env_vars = _meant_for_us(source.env_vars)
                source.decode_complex_value = _as_written  # type: ignore[assignment, method-assign]
        return init_settings, env_settings, dotenv_settings, secrets


class _GivenSettings(Settings):
    """Settings of nothing but what is given."""

    model_config = SettingsConfigDict(extra="forbid")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the one source."""
        return (init_settings,)


def load_settings(overrides: Mapping[str, Mapping[str, object]] | None = None) -> Settings:
    """Read all settings.

    Args:
        overrides: values by section that win over every source.

    Raises:
        SettingsError: one line for each setting that is wrong, unknown or missing.
    """
    return _validated(Settings, overrides or {})


def settings_of(variables: Mapping[str, str]) -> Settings:
    """Read settings from variables as they would stand in the environment, and nowhere else.

    Raises:
        SettingsError: one line for each setting that is wrong, unknown or missing.
    """
    return _validated(_GivenSettings, _by_section(variables))


def _by_section(variables: Mapping[str, str]) -> dict[str, Any]:
    sections: dict[str, Any] = {}
    meant = _meant_for_us({key.lower(): value for key, value in variables.items()})
    for name, value in sorted(meant.items()):
        *path, last = name.split(DELIMITER)
        section = sections
        for part in path:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                raise SettingsError(f"{name.upper()}: is below a setting that has a value")
        section[last] = value
    return sections


def _validated(kind: type[Settings], values: Mapping[str, object]) -> Settings:
    try:
        settings = kind(**dict(values))  # type: ignore[arg-type]
    except ValidationError as error:
        raise SettingsError(*(_explain(problem) for problem in error.errors())) from None
    except UnparsableSettings as error:
        raise SettingsError(f"a setting is not understood: {error}") from None
    except OSError as error:
        where = error.filename or ".env or a secret file"
        raise SettingsError(f"{where}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(".env or a secret file is no text") from None
    _require_tls_for_proof(settings)
    _refuse_unproven_listening(settings)
    _require_pins(settings)
    return settings


def _require_tls_for_proof(settings: Settings) -> None:
    """Refuse what could never work: without TLS no key shows whom one talks to."""
    wanted = {
        "ATTESTATION__MODEL_POLICY": settings.attestation.model_policy == "require",
        "ATTESTATION__E2EE": settings.attestation.e2ee,
    }
    if urlsplit(settings.llm.base_url).scheme != "https" and any(wanted.values()):
        name = next(name for name, on in wanted.items() if on)
        raise SettingsError(f"{name}: needs an LLM__BASE_URL that begins with https://")


def _require_pins(settings: Settings) -> None:
    """Refuse to require proof of the model from whatever machine happens to answer."""
    if settings.attestation.model_policy == "require" and settings.attestation.model_pins is None:
        raise SettingsError(
            "ATTESTATION__MODEL_PINS: is required by ATTESTATION__MODEL_POLICY=require, a file of"
            " the measurements to accept; this makes one: signal-tee-bot attest model --output FILE"
        )


def _refuse_unproven_listening(settings: Settings) -> None:
    """Refuse to send voices to a model that nothing vouches for, where proof is required."""
    proof_is_required = settings.attestation.model_policy == "require" or settings.attestation.e2ee
    if settings.llm.transcription_model and proof_is_required:
        raise SettingsError(
            "LLM__TRANSCRIPTION_MODEL: only the model that answers is verified, so with"
            " ATTESTATION__MODEL_POLICY=require or ATTESTATION__E2EE it must be unset"
        )


def setting_names() -> frozenset[str]:
    """Return every setting's name as it is written in the environment."""
    return frozenset(_names(Settings, ()))


def settings_files() -> list[Path]:
    """Return the files that settings come from, as far as they are there."""
    sections = tuple(f"{name}{DELIMITER}" for name in Settings.model_fields)
    secrets = (file for folder in _secret_folders() for file in sorted(folder.iterdir()))
    ours = (file for file in secrets if file.name.lower().startswith(sections))
    return [file for file in (Path(".env"), *ours) if file.is_file()]


def _meant_for_us(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Drop what is empty, and names such as LOG or BOT that somebody else may have set."""
    return {
        name: value
        for name, value in variables.items()
        if (DELIMITER in name or name in WITHOUT_SECTION) and (value or name in EMPTY_MEANS_OFF)
    }


def _as_written(_name: str, _field: FieldInfo | None, value: object) -> object:
    """Return a value undecoded: JSON in place of a section would be settings without their names.

    `enable_decoding=False` leaves out the values of dictionaries.
    """
    return value


def _secret_folders() -> Iterator[Path]:
    """Return the folders of secrets that are there.

    Raises:
        OSError: the bot's own cannot be read; its secrets would count as unset.
    """
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    if credentials and Path(credentials).is_dir():
        next(Path(credentials).iterdir(), None)
        yield Path(credentials)
    # That of a server may be somebody else's.
    if CONTAINER_SECRETS.is_dir() and os.access(CONTAINER_SECRETS, os.R_OK | os.X_OK):
        yield CONTAINER_SECRETS


def _names(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        kind, *of_what = (field.annotation, *get_args(field.annotation))
        if get_origin(kind) is dict:
            kind, path_to = of_what[-1], (*path, name, ANY_NAME)
        else:
            path_to = (*path, name)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _names(kind, path_to)
        else:
            yield DELIMITER.join(path_to).upper()


def _explain(problem: Mapping[str, Any]) -> str:
    """Say one problem in one line, without the value."""
    # pydantic marks what is wrong with a name itself by a part `[key]`.
    path = [part for part in problem["loc"] if isinstance(part, str) and part != "[key]"]
    known = frozenset(_with_chosen_names(setting_names(), path))
    prefixes = [DELIMITER.join(path[:length]).upper() for length in range(len(path), 0, -1)]
    name = next((prefix for prefix in prefixes if prefix in known), prefixes[0])
    if problem["type"] == "extra_forbidden":
        name = DELIMITER.join((name, *_keys_below(problem["input"]))).upper()
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        return f"{name}: no such setting" + (f"; did you mean {near[0]}?" if near else "")
    if problem["type"] == "missing":
        return f"{'SIGNAL__PHONE_NUMBER' if name == 'SIGNAL' else name}: is required"
    if problem["type"] in {"dict_type", "model_type"}:
        below = min(longer for longer in known if longer.startswith(name + DELIMITER))
        return f"{name}: has no value of its own; set what is below it, such as {below}"
    return f"{name}: {_expectation(problem)}"


def _with_chosen_names(names: Iterable[str], path: Sequence[str]) -> Iterator[str]:
    """Put the names that a path has into the settings that have a place for one."""
    for name in names:
        parts = name.split(DELIMITER)
        for number, chosen in enumerate(path[: len(parts)]):
            if parts[number] == ANY_NAME.upper():
                parts[number] = chosen.upper()
        yield DELIMITER.join(parts)


def _keys_below(value: object) -> Iterator[str]:
    """The rest of an unknown setting's name, where a whole section is unknown."""
    while isinstance(value, Mapping) and value:
        key = next(iter(value))
        yield str(key)
        value = value[key]


def _expectation(problem: Mapping[str, Any]) -> str:
    message = str(problem["msg"]).removeprefix("Value error, ")
    return message.replace("Input should be", "must be").replace("String should", "must")
