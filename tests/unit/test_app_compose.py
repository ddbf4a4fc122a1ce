"""The application: three places agree on it, and its images are pinned."""

import hashlib
import json
from dataclasses import replace
from typing import Any, Final

import pytest

from bot.attestation.app_compose import (
    MAX_COMPOSE_CHARS,
    _config_id_v2,
    compose_checks,
    images_of,
)
from bot.attestation.checks import Check, Verdict
from bot.attestation.errors import MalformedEvidence
from bot.attestation.event_log import BootClaims
from bot.attestation.quote import parse_quote
from tests.fakes.soft_tdx import SoftTdx

PIN: Final = "@sha256:" + "ab" * 32
SERVICES: Final = f"services:\n  bot:\n    image: registry.example/someone/bot:1.2{PIN}\n"
QUOTE: Final = parse_quote(SoftTdx().quote(bytes(64), bytes(48), [bytes(48)] * 4))


def app(compose_file: object = SERVICES, **fields: object) -> str:
    return json.dumps(
        {"manifest_version": 2, "runner": "docker-compose", "docker_compose_file": compose_file}
        | fields
    )


def booted(app_compose: str, **fields: Any) -> BootClaims:
    compose_hash = hashlib.sha256(app_compose.encode()).digest()
    claims = BootClaims(compose_hash[:20], compose_hash, b"\3" * 20, None, "kms", "aabbccdd")
    return replace(claims, **fields)


def checked(
    app_compose: str, boot: BootClaims | None, mr_config_id: bytes = bytes(48)
) -> tuple[Check, Check]:
    return compose_checks(replace(QUOTE, mr_config_id=mr_config_id), boot, app_compose)


def v1(compose_hash: bytes) -> bytes:
    return b"\1" + compose_hash + bytes(15)


# Three places


def test_an_application_that_all_places_name_is_proven() -> None:
    boot = booted(app())
    compose, images = checked(app(), boot, v1(boot.compose_hash))
    assert (compose.verdict, images.verdict) == (Verdict.PROVEN, Verdict.PROVEN)


def test_a_host_that_sets_no_config_id_leaves_the_register_to_prove_it() -> None:
    compose, _ = checked(app(), booted(app()))
    assert compose.verdict is Verdict.PROVEN
    assert compose.message.endswith("(by RTMR3 alone)")


VECTOR: Final = bytes.fromhex(
    "02e472ed80a08042f044ba63b53b798e98e3ea5219cd078007b1ac8b3dfc762b94"
).ljust(48, b"\0")
"""MR_CONFIG_ID of dstack's own test for its second form."""


def test_the_second_form_of_the_config_id_is_dstacks() -> None:
    claims = BootClaims(bytes(range(20)), bytes(range(32)), b"", None, "kms", "aabbccdd")
    assert _config_id_v2(claims) == VECTOR


CONFIG_IDS: Final = {
    "another application's": v1(b"\1" * 32),
    "something after the hash": v1(hashlib.sha256(app().encode()).digest())[:-1] + b"\1",
    "the second form of another": VECTOR,
    "the third form": b"\3" + b"\1" * 32 + bytes(15),
    "an unknown form": b"\xff" * 48,
}


@pytest.mark.parametrize("name", CONFIG_IDS)
@pytest.mark.parametrize("provider", ["kms", "other"])
def test_a_config_id_that_is_not_the_applications_is_refused(name: str, provider: str) -> None:
    compose, images = checked(app(), booted(app(), key_provider=provider), CONFIG_IDS[name])
    assert compose.verdict is Verdict.FAILED
    assert "MR_CONFIG_ID" in compose.message
    assert images.verdict is Verdict.NOT_CHECKED


def test_an_application_that_no_event_names_is_not_checked() -> None:
    for check in checked(app(), None):
        assert (check.verdict, check.asked) == (Verdict.NOT_CHECKED, True)


# Images


PINNED: Final = {
    "one image": SERVICES,
    "quoted": f"services:\n  bot:\n    'image': \"bot{PIN}\"\n",
    "in one line": f"{{services: {{bot: {{image: 'bot{PIN}'}}}}}}",
    "an image in a text": SERVICES + "    command: |\n      image: evil:latest\n",
    "volumes in both forms": SERVICES
    + "    volumes:\n      - /a:/b\n      - {type: bind, source: /a, target: /b}\n",
    "all that a file may hold": SERVICES
    + "x-log: {a: b}\nvolumes: {a: }\nnetworks: {}\nconfigs: {}\nsecrets: {}\n"
    + "version: '3'\nname: x\n",
    "a default that nothing replaces": f"services:\n  a:\n    image: ${{IMAGE:-bot{PIN}}}\n",
}


@pytest.mark.parametrize("name", PINNED)
def test_pinned_images_are_proven(name: str) -> None:
    _, images = checked(app(PINNED[name]), booted(app(PINNED[name])))
    assert images.verdict is Verdict.PROVEN


def service(lines: str) -> str:
    return f"services:\n  bot:\n    image: bot{PIN}\n  other:\n    {lines}\n"


LOOSE: Final = {
    "a tag": service("image: other:latest"),
    "a name alone": service("image: other"),
    "a variable": service("image: ${OTHER}"),
    "a variable after the pin": service(f"image: other{PIN}$X"),
    "a default that is not pinned": service("image: ${OTHER:-other:latest}"),
    "a default within a default": service(f"image: ${{A:-${{B:-other{PIN}}}}}"),
    "a short digest": service("image: other@sha256:" + "ab" * 31),
    "capitals in the digest": service("image: other@sha256:" + "AB" * 32),
    "a line break after the digest": service(f'image: "other{PIN}\\n"'),
    "an escaped key": service('"im\\x61ge": other:latest'),
}


@pytest.mark.parametrize("name", LOOSE)
def test_a_loose_image_is_counted(name: str) -> None:
    _, images = checked(app(LOOSE[name]), booted(app(LOOSE[name])))
    assert images.verdict is Verdict.FAILED
    assert images.message == "1 of 2 images are not pinned by their digest"


UNREADABLE: Final = {
    "services of nothing": "services: {}\n",
    "a service as a text": "services:\n  bot: image\n",
    "a service without an image": "services:\n  bot:\n    command: x\n",
    "an image as a list": f"services:\n  bot:\n    image: [bot{PIN}]\n",
    "a build": service(f"image: other{PIN}\n    build: ."),
    "an extension": service(f"image: other{PIN}\n    extends: {{file: x.yml, service: y}}"),
    "a provider": service(f"image: other{PIN}\n    provider: {{type: x}}"),
    "a merged key": service(f"image: other{PIN}\n    <<: {{build: .}}"),
    "merged services": f"x-a: &a {{b: {{image: evil}}}}\n{SERVICES}  <<: *a\n",
    "an image as a volume": service(
        f"image: other{PIN}\n    volumes:\n      - {{type: image, source: evil, target: /x}}"
    ),
    "a volume that may become an image": service(
        f"image: other{PIN}\n    volumes:\n      - {{type: '${{T:-bind}}', source: x, target: /x}}"
    ),
    "an include": SERVICES + "include: [other.yml]\n",
    "models": SERVICES + "models: {llm: {model: ai/evil}}\n",
    "an unknown key": SERVICES + "services2: {}\n",
    "a key twice": f"services:\n  bot:\n    image: bot{PIN}\n    image: evil\n",
    "services twice": SERVICES + SERVICES,
    "a tag of its own": f"services: !reset\n  bot:\n    image: bot{PIN}\n",
    "a key in another notation": service(f"image: other{PIN}\n    !!binary YnVpbGQ=: ."),
    "two documents": SERVICES + "---\n" + SERVICES,
    "no YAML": "services: [",
    "nothing": "",
    "depth": "[" * 1_000,
    "length": SERVICES + "#" * 200_000,
    **{
        f"a line break of some readers: {ord(mark):x}": f'{SERVICES}    command: "a{mark}b"\n'
        for mark in "\x85\u2028\u2029\ufeff"
    },
    "an unknown reference": "services: *x\n",
    "a reference to itself": "services: &x\n  bot: *x\n",
    "too long a text": "#" * (MAX_COMPOSE_CHARS + 1),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_compose_file_that_may_hide_an_image_is_refused(name: str) -> None:
    with pytest.raises(MalformedEvidence):
        images_of(app(UNREADABLE[name]))
    _, images = checked(app(UNREADABLE[name]), booted(app(UNREADABLE[name])))
    assert images.verdict is Verdict.FAILED


APPLICATIONS: Final = {
    "no JSON": "hello",
    "a list": "[]",
    "depth": "[" * 100_000,
    "too long": app() + " " * 2_000_000,
    "another runner": app(runner="bash"),
    "no runner": app(runner=None),
    "no compose file": app(None),
    "a key twice": app()[:-1] + ', "docker_compose_file": "services: {}"}',
}


@pytest.mark.parametrize("name", APPLICATIONS)
def test_an_application_that_cannot_be_read_has_no_images(name: str) -> None:
    with pytest.raises(MalformedEvidence):
        images_of(APPLICATIONS[name])


@pytest.mark.parametrize(
    "fields",
    [{"allowed_envs": ["IMAGE"]}, {"pre_launch_script": "export IMAGE=evil"}],
    ids=["the environment", "a script"],
)
def test_a_default_that_something_may_replace_is_loose(fields: dict[str, object]) -> None:
    text = app(PINNED["a default that nothing replaces"], **fields)
    assert images_of(text) == (f"${{IMAGE:-bot{PIN}}}",)
    _, images = checked(text, booted(text))
    assert images.verdict is Verdict.FAILED
