"""The application of a machine: app-compose.json, which dstack starts and measures.

dstack's guest notes the SHA-256 of app-compose.json (the compose hash) in RTMR3, and the host may
name it in MR_CONFIG_ID. The file holds a Docker Compose file as text, next to fields of dstack.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import yaml

from bot.attestation.checks import Check, Verdict, failed, not_checked, proven, proven_if
from bot.attestation.errors import MalformedEvidence
from bot.attestation.event_log import BootClaims
from bot.attestation.quote import TdQuote
from bot.attestation.strict_json import decode

MAX_APP_COMPOSE_CHARS: Final = 1024 * 1024
MAX_COMPOSE_CHARS: Final = 128 * 1024
MAX_VARIABLES: Final = 1000
PINNED: Final = re.compile(r"[a-z0-9][a-zA-Z0-9._/:-]*@sha256:[0-9a-f]{64}")
"""Name of an image with the digest of its content."""


def read_app_compose(text: str) -> dict[str, Any]:
    """Return the fields of app-compose.json."""
    if len(text) > MAX_APP_COMPOSE_CHARS:
        raise MalformedEvidence("app-compose.json is longer than this program reads")
    fields = decode(text, "app-compose.json")
    if not isinstance(fields, dict):
        raise MalformedEvidence("app-compose.json is not an object")
    return fields


def compose_checks(
    quote: TdQuote, boot: BootClaims | None, app_compose: str
) -> tuple[Check, Check]:
    """Check the application: `compose` (it is the running one), `images` (named by digest)."""
    compose = _compose_check(quote, boot, app_compose)
    if compose.verdict is not Verdict.PROVEN:
        why = "images of another application than the running one say nothing"
        return compose, not_checked("images", why, asked=True)
    try:
        images = images_of(app_compose)
    except MalformedEvidence as error:
        return compose, failed("images", str(error))
    loose = sum(not PINNED.fullmatch(image) for image in images)
    return compose, proven_if(
        not loose,
        "images",
        "all images are pinned by their digest",
        f"{loose} of {len(images)} images are not pinned by their digest",
    )


def _compose_check(quote: TdQuote, boot: BootClaims | None, app_compose: str) -> Check:
    if boot is None:
        return not_checked("compose", "no boot event vouches for an application", asked=True)
    text = app_compose.encode("utf-8", "surrogatepass")
    if hashlib.sha256(text).digest() != boot.compose_hash:
        return failed("compose", "the application shown is not the one that was started")
    form = quote.mr_config_id[0]
    if not any(quote.mr_config_id):
        # The host did not use MR_CONFIG_ID. The guest, which RTMR0 to RTMR2 measure, has still
        # noted the hash in RTMR3 before any application ran.
        return proven("compose", "the application shown is the one that runs (by RTMR3 alone)")
    if form not in (1, 2):
        return failed("compose", "MR_CONFIG_ID has a form that this program cannot check")
    return proven_if(
        quote.mr_config_id == (_config_id_v1 if form == 1 else _config_id_v2)(boot),
        "compose",
        "the application shown is the one that runs",
        "the machine was started for another application (MR_CONFIG_ID)",
    )


def _config_id_v1(boot: BootClaims) -> bytes:
    return (b"\1" + boot.compose_hash).ljust(48, b"\0")


def _config_id_v2(boot: BootClaims) -> bytes | None:
    from Crypto.Hash import keccak  # noqa: PLC0415 - only for old machines, and slow to load

    kind = {"none": 0, "local-sgx": 1, "kms": 2, "tpm": 3}.get(boot.key_provider)
    if kind is None:
        return None
    provider = bytes([kind]) + bytes.fromhex(boot.key_provider_id)
    digest = keccak.new(digest_bits=256, data=boot.compose_hash + boot.app_id + provider).digest()
    return (b"\2" + digest).ljust(48, b"\0")


# Images

_KEYS_OF_FILE: Final = {"configs", "name", "networks", "secrets", "services", "version", "volumes"}
_OTHER_SOURCES: Final = {"build", "extends", "models", "provider"}
"""Keys of a service that bring in programs besides its `image`."""
_MOUNTS: Final = {"bind", "cluster", "npipe", "tmpfs", "volume"}
"""Types of a volume that bring in no image. A variable could become any type."""
_WITH_DEFAULT: Final = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*):?-(?P<default>[^${}]+)\}")
_OTHER_LINE_BREAKS: Final = re.compile("[\x85\u2028\u2029\ufeff]")
"""Characters that some YAML parsers treat as line breaks and others do not."""


@lru_cache(maxsize=4)  # of a bot, its model and the gateway: parsing YAML takes long
def images_of(app_compose: str) -> tuple[str, ...]:
    """Return every image of the Docker Compose file in app-compose.json, in order.

    An image `${NAME:-default}` counts as its default if no other field of app-compose.json
    mentions the name: the guest passes only listed variables to Docker Compose.

    Raises:
        MalformedEvidence: the file is unreadable, or may bring in images that it does not name
            (builds, includes, extensions, images as volumes).
    """
    fields, services = _read(app_compose)
    return tuple(_image(_mapping(service), str(fields)) for service in services.values())


def services_of(app_compose: str) -> frozenset[str]:
    """Return the names of the services of an application; MalformedEvidence as for `images_of`."""
    return frozenset(_read(app_compose)[1])


def _read(app_compose: str) -> tuple[dict[str, Any], dict[str, yaml.Node]]:
    """Return the fields of dstack, and the services of the Docker Compose file."""
    fields = read_app_compose(app_compose)
    text = fields.pop("docker_compose_file", None)
    if fields.get("runner") != "docker-compose" or not isinstance(text, str):
        raise MalformedEvidence("the application is not started by Docker Compose")
    root = _mapping(_yaml(text))
    if any(key not in _KEYS_OF_FILE and not key.startswith("x-") for key in root):
        raise MalformedEvidence("the Docker Compose file brings in more than its services")
    services = _mapping(root.get("services"))
    if not services:
        raise MalformedEvidence("the Docker Compose file starts nothing")
    return fields, services


def _yaml(text: str) -> yaml.Node | None:
    if len(text) > MAX_COMPOSE_CHARS or _OTHER_LINE_BREAKS.search(text):
        raise MalformedEvidence("the Docker Compose file cannot be read")
    try:
        # Deep nesting crashes the faster libyaml; this parser raises.
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        raise MalformedEvidence("the Docker Compose file is not YAML") from None
    return root


def _image(service: dict[str, yaml.Node], other_fields: str) -> str:
    volumes = service.get("volumes")
    entries = [] if volumes is None or isinstance(volumes, yaml.ScalarNode) else volumes.value
    types = [_mapping(e).get("type") for e in entries if isinstance(e, yaml.MappingNode)]
    if not _OTHER_SOURCES.isdisjoint(service) or any(_text(one) not in _MOUNTS for one in types):
        raise MalformedEvidence("a service is made of more than one image")
    image = _text(service.get("image"))
    variable = _WITH_DEFAULT.fullmatch(image)
    return variable["default"] if variable and variable["name"] not in other_fields else image


def _mapping(node: yaml.Node | None) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode) or node.tag != "tag:yaml.org,2002:map":
        raise MalformedEvidence("the Docker Compose file is not laid out as one")
    entries = {_text(key): value for key, value in node.value}
    if len(entries) != len(node.value):
        raise MalformedEvidence("a key stands twice in one place")
    return entries


def _text(node: yaml.Node | None) -> str:
    """Return a plain text; refuse tags and merges, which parsers read differently."""
    if not isinstance(node, yaml.ScalarNode) or node.tag != "tag:yaml.org,2002:str":
        raise MalformedEvidence("the Docker Compose file is not laid out as one")
    return str(node.value)


# Fields of dstack

FROM_OUTSIDE: Final = re.compile(
    "SIGNAL__PHONE_NUMBER"
    "|LLM__(MODELS__[A-Z0-9]+(_[A-Z0-9]+)*__)?(API_KEY|SECRET_ACCESS_KEY|SESSION_TOKEN|ACCESS_KEY_ID)"
    "|LLM__(TRANSCRIPTION|SPEECH)_KEY|TOOLS__WEB_SEARCH__API_KEY|ACCESS__ALLOWED"
    "|MCP__SERVERS__[A-Z0-9]+(_[A-Z0-9]+)*__(TOKEN|ENV__([A-Z0-9]+_)*(KEY|PASSWORD|SECRET|TOKEN))"
    "|HEALTH__LISTEN|LOG__(LEVEL|FORMAT)|SIGNAL_(CAPTCHA|CODE)"
)
"""Variables that the operator may set through dstack's encrypted environment, which nothing
measures: secrets, the registration of the account, and settings that people do not notice. Any
other name could decide what runs: dstack sets all of them before any container starts, the
guest's shell runs the file in BASH_ENV, and Docker Compose starts the one in COMPOSE_FILE."""


def configuration_problems(fields: dict[str, Any]) -> Iterator[str]:
    """Name every field of app-compose.json that may give the operator a say.

    The list of fields and values is closed. The text of the Docker Compose file is not checked
    here; see `bot.attestation.release`.
    """
    for name in sorted({"docker_compose_file", "runner"} - fields.keys()):
        yield f"app-compose.json has no {name}"
    for name, value in fields.items():
        if name == "allowed_envs":
            yield from _variable_problems(value)
        elif name not in _FIELDS:
            yield f"{_shown(name)} is not on the list of what app-compose.json may have"
        elif not _FIELDS[name](value):
            yield f"{name} has another value than it may have{_REMEDIES.get(name, '')}"


def variables_of(fields: dict[str, Any]) -> tuple[str, ...]:
    """Return the variables that come from outside, for fields without problems."""
    return tuple(fields.get("allowed_envs") or ())


def _variable_problems(value: object) -> Iterator[str]:
    if value is None:  # older tools write null for an empty list
        return
    if not isinstance(value, list) or len(value) > MAX_VARIABLES:
        yield f"allowed_envs is not a list of at most {MAX_VARIABLES} names"
        return
    for name in value:
        if not isinstance(name, str) or not FROM_OUTSIDE.fullmatch(name):
            yield f"allowed_envs has {_shown(name)}, which decides more than a secret"


def _shown(name: object) -> str:
    """Return a stranger's word if it is harmless to show."""
    if isinstance(name, str) and re.fullmatch("[A-Za-z0-9_.-]{1,64}", name):
        return name
    return "a name that cannot be shown"


_Accepts = Callable[[object], bool]


def _one_of(*values: object) -> _Accepts:
    """Accept these values in exactly their types: 1 is not True."""
    return lambda value: any(type(value) is type(one) and value == one for one in values)


def _matching(pattern: str) -> _Accepts:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _is_size(value: object) -> bool:
    return (type(value) is int and value >= 0) or _matching("[0-9]{1,6}[KMGT]?")(value)


_TRUTH: Final = _one_of(True, False)
_FIELDS: Final[dict[str, _Accepts]] = {
    "bash_script": _one_of(""),
    "docker_compose_file": lambda value: isinstance(value, str),
    "docker_config": _one_of({}),
    "event_log_version": _one_of(1, 2),
    "features": lambda v: isinstance(v, list) and all(one in ("kms", "tproxy-net") for one in v),
    "gateway_enabled": _TRUTH,  # reaches published ports
    "init_script": _one_of(""),
    "key_provider": _one_of("kms", "local", "none", "tpm"),  # has a check of its own
    "key_provider_id": _matching("([0-9a-f]{2}){0,1024}"),
    "kms_enabled": _TRUTH,
    "local_key_provider_enabled": _TRUTH,
    "manifest_version": _one_of(1, 2),
    "name": _matching("([A-Za-z0-9][A-Za-z0-9 ._-]{0,62})?"),  # empty at Phala Cloud
    "no_instance_id": _TRUTH,
    # Phala Cloud's own script fails too (read: 0.0.14, 0.0.15, 0.0.18 to 0.0.20). It accepts the
    # SSH keys in /dstack/user_config for root; the host writes that file, and nothing measures it.
    "pre_launch_script": _one_of(""),
    "public_logs": _one_of(False),
    "public_sysinfo": _one_of(False),
    "public_tcbinfo": _TRUTH,  # every proof shows it
    "runner": _one_of("docker-compose"),
    "secure_time": _TRUTH,
    "storage_fs": _one_of("ext4", "zfs", "btrfs"),
    "swap_size": _is_size,
    "tproxy_enabled": _TRUTH,
}
"""Fields and values of `AppCompose` in dstack-types that give the operator nothing."""
_REMEDIES: Final = {
    "pre_launch_script": "; phala deploy --no-pre-launch-script leaves out Phala Cloud's script"
}
