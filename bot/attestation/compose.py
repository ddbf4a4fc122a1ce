"""The application: its app-compose.json, the three places that must agree on it, its images."""

import hashlib
import re
from collections.abc import Sequence
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
KEPT_APPLICATIONS: Final = 4
"""Whose images are kept once read, which takes long: of a bot, its model and the model's gateway,
each of which is read again for its release, its manager or its next report."""

_KEY_PROVIDER_BYTES: Final = {"none": 0, "local-sgx": 1, "kms": 2, "tpm": 3}
PINNED: Final = re.compile(r"[a-z0-9][a-zA-Z0-9._/:-]*@sha256:[0-9a-f]{64}")
"""An image that is named by its content."""

_WITH_DEFAULT: Final = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*):?-(?P<default>[^${}]+)\}")
_COMPOSE_KEYS: Final = frozenset(
    {"configs", "name", "networks", "secrets", "services", "version", "volumes"}
)
_OTHER_SOURCES: Final = frozenset({"build", "extends", "models", "provider"})
"""Keys of a service by which something else than its `image` gets in."""
_MOUNTS: Final = frozenset({"bind", "cluster", "npipe", "tmpfs", "volume"})
"""Types of a volume that bring in no image. A variable may become any type."""
_STRING: Final = "tag:yaml.org,2002:str"
_OTHER_LINE_BREAKS: Final = re.compile("[\x85\u2028\u2029\ufeff]")
"""Line breaks to one reader of YAML and none to another."""


def compose_checks(
    quote: TdQuote, boot: BootClaims | None, app_compose: str
) -> tuple[Check, Check]:
    """Check what the TD says it runs: `compose`, `images`."""
    compose = _compose_check(quote, boot, app_compose)
    if compose.verdict is not Verdict.PROVEN:
        why = "images of another application than the running one say nothing"
        return compose, not_checked("images", why, asked=True)
    return compose, _images_check(app_compose)


@lru_cache(maxsize=KEPT_APPLICATIONS)
def images_of(app_compose: str) -> tuple[str, ...]:
    """Return every image of the Docker Compose file inside app-compose.json, in its order.

    An image `${NAME:-default}` is its default where nothing else in app-compose.json knows the
    name: the guest passes on no variable that is not listed there.

    Raises:
        MalformedEvidence: it cannot be read, or something in it may bring in images that it does
            not name (builds, includes, extensions, images as volumes).
    """
    if len(app_compose) > MAX_APP_COMPOSE_CHARS:
        raise MalformedEvidence("app-compose.json is longer than this program reads")
    fields = decode(app_compose, "app-compose.json")
    if not isinstance(fields, dict) or fields.get("runner") != "docker-compose":
        raise MalformedEvidence("the application is not started by Docker Compose")
    text = fields.get("docker_compose_file")
    if not isinstance(text, str):
        raise MalformedEvidence("app-compose.json has no Docker Compose file")
    rest = str({key: value for key, value in fields.items() if key != "docker_compose_file"})
    return tuple(_without_variable(image, rest) for image in _compose_images(text))


# compose


def _compose_check(quote: TdQuote, boot: BootClaims | None, app_compose: str) -> Check:
    if boot is None:
        return not_checked("compose", "no boot event vouches for an application", asked=True)
    text = app_compose.encode("utf-8", "surrogatepass")
    if hashlib.sha256(text).digest() != boot.compose_hash:
        return failed("compose", "the application shown is not the one that was started")
    return _config_id_check(quote.mr_config_id, boot)


def _config_id_check(config_id: bytes, boot: BootClaims) -> Check:
    """Compare MR_CONFIG_ID, which the host sets and the guest refuses to boot against.

    All zero means that the host did not use it. The guest, which RTMR0 to RTMR2 measure, has
    then noted the hash in RTMR3 all the same, before anything of the application ran; so the
    proof holds, on that one leg.
    """
    if not any(config_id):
        return proven("compose", "the application shown is the one that runs (by RTMR3 alone)")
    forms = {1: _config_id_v1, 2: _config_id_v2}
    form = forms.get(config_id[0])
    if form is None:
        return failed("compose", "MR_CONFIG_ID has a form that this program cannot check")
    return proven_if(
        form(boot) == config_id,
        "compose",
        "the application shown is the one that runs",
        "the machine was started for another application (MR_CONFIG_ID)",
    )


def _config_id_v1(boot: BootClaims) -> bytes:
    return (b"\1" + boot.compose_hash).ljust(48, b"\0")


def _config_id_v2(boot: BootClaims) -> bytes | None:
    from Crypto.Hash import keccak  # noqa: PLC0415 - of old machines alone, and slow to load

    kind = _KEY_PROVIDER_BYTES.get(boot.key_provider)
    if kind is None:
        return None
    provider = bytes([kind]) + bytes.fromhex(boot.key_provider_id)
    digest = keccak.new(digest_bits=256, data=boot.compose_hash + boot.app_id + provider).digest()
    return (b"\2" + digest).ljust(48, b"\0")


# images


def _images_check(app_compose: str) -> Check:
    try:
        images = images_of(app_compose)
    except MalformedEvidence as error:
        return failed("images", str(error))
    loose = [image for image in images if not PINNED.fullmatch(image)]
    return proven_if(
        not loose,
        "images",
        "all images are pinned by their digest",
        f"{len(loose)} of {len(images)} images are not pinned by their digest",
    )


def _without_variable(image: str, rest: str) -> str:
    variable = _WITH_DEFAULT.fullmatch(image)
    return variable["default"] if variable and variable["name"] not in rest else image


def _root(text: str) -> yaml.Node | None:
    if len(text) > MAX_COMPOSE_CHARS or _OTHER_LINE_BREAKS.search(text):
        raise MalformedEvidence("the Docker Compose file cannot be read")
    try:
        # libyaml would be faster, but dies of deep nesting; this one raises.
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        raise MalformedEvidence("the Docker Compose file is no YAML") from None
    return root


def _compose_images(text: str) -> tuple[str, ...]:
    root = _mapping(_root(text))
    if any(key not in _COMPOSE_KEYS and not key.startswith("x-") for key in root):
        raise MalformedEvidence("the Docker Compose file brings in more than its services")
    services = _mapping(root.get("services"))
    if not services:
        raise MalformedEvidence("the Docker Compose file starts nothing")
    return tuple(_image(_mapping(service)) for service in services.values())


def _image(service: dict[str, Any]) -> str:
    if not _OTHER_SOURCES.isdisjoint(service) or _mounts_image(service.get("volumes")):
        raise MalformedEvidence("a service is made of more than one image")
    return _text(service.get("image"))


def _mounts_image(volumes: yaml.Node | None) -> bool:
    if volumes is None or isinstance(volumes, yaml.ScalarNode):
        return False
    long_forms = [entry for entry in volumes.value if isinstance(entry, yaml.MappingNode)]
    return any(_text(_mapping(entry).get("type")) not in _MOUNTS for entry in long_forms)


def _mapping(node: yaml.Node | None) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode) or node.tag != "tag:yaml.org,2002:map":
        raise MalformedEvidence("the Docker Compose file is not laid out as one")
    return _unique([(_text(key), value) for key, value in node.value])


def _text(node: yaml.Node | None) -> str:
    """Return a text as it stands there; one with a tag, or a merge, is another to some readers."""
    if not isinstance(node, yaml.ScalarNode) or node.tag != _STRING:
        raise MalformedEvidence("the Docker Compose file is not laid out as one")
    return str(node.value)


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise MalformedEvidence("a key stands twice in one place")
    return fields
