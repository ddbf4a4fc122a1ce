"""Slots of a published compose file: operators choose values there, and change nothing else."""

import json
import string
from typing import Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.attestation.checks import Verdict
from bot.attestation.errors import MalformedEvidence
from bot.attestation.release import SLOT_KINDS, slot_values
from bot.attestation.verification import BundleReport
from tests.fakes.dstack_agent import COMPOSE, PINNED_IMAGE, SoftAgent
from tests.fakes.soft_bundle import soft_bundle, soft_release, soft_report
from tests.fakes.soft_tdx import SoftTdx
from tests.fixtures_attestation import CLOCK

PLATFORM: Final = SoftTdx(now=CLOCK)
ADMIN: Final = "9d0652a3-dcc3-4d11-975f-74d61598733f"
PUBLISHED: Final = f"""\
services:
  bot:
    image: {PINNED_IMAGE}
    environment:
      LLM__MODEL: "openai/gpt-oss-120b" # slot: name
      SIGNAL__URL: "gateway.example.org" # slot: host
      STORE__RETENTION_DAYS: "30" # slot: number
      BOT__REACTION: "👀" # slot: emoji
      ACCESS__ADMINS: "" # slot: people
    restart: always
"""
OTHER_VALUES: Final = {
    '"openai/gpt-oss-120b"': '"zai/glm-5.1:free"',
    '"gateway.example.org"': '"signal"',
    '"30"': '"0"',
    '"👀"': '"❤️"',
    'ADMINS: ""': f'ADMINS: "{ADMIN},{ADMIN}"',
}


def app(compose_file: str) -> str:
    return json.dumps(json.loads(COMPOSE) | {"docker_compose_file": compose_file})


def verified(compose_file: str) -> BundleReport:
    """Check a bot with this compose file against the published one."""
    release = soft_release(SoftAgent(PLATFORM, app(PUBLISHED)))
    bundle = soft_bundle(PLATFORM, SoftAgent(PLATFORM, app(compose_file)))
    return soft_report(PLATFORM, bundle, release)


def test_published_and_chosen_values_are_proven_and_named() -> None:
    chosen = PUBLISHED
    for published, instead in OTHER_VALUES.items():
        assert published in chosen
        chosen = chosen.replace(published, instead)
    for text in (PUBLISHED, chosen):
        report = verified(text)
        assert report.passed
        for name in ("release", "environment"):
            assert report[name].verdict is Verdict.PROVEN
            named = "LLM__MODEL=zai/glm-5.1:free" in report[name].message
            assert named is (text == chosen)


ATTACKS: Final = {
    "another image": (PINNED_IMAGE, PINNED_IMAGE.replace("ab", "cd")),
    "a line more": ("restart: always\n", "restart: always\n    privileged: true\n"),
    "no line break at the end": ("always\n", "always"),
    "another line": ("restart: always", "privileged: true"),
    "white space": ("restart: always", "restart: always "),
    "another line break": ("services:\n", "services:\r\n"),
    "a service in a value": ('"30"', '"30"\n  evil:\n    image: "evil"'),
    "a line break in a value": ('"30"', '"3\n0"'),
    "a line separator in a value": ('"30"', '"3\u20280"'),
    "a quotation mark in a value": ('"30"', '"30" , x: "1"'),
    "an escape in a value": ('"30"', '"\\x33"'),
    "a variable in a value": ('"openai/gpt-oss-120b"', '"${LLM__MODEL}"'),
    "an option in a value": ('"openai/gpt-oss-120b"', '"--evil"'),
    "a path in a value": ('"openai/gpt-oss-120b"', '"/etc/passwd"'),
    "an empty value": ('"30"', '""'),
    "a negative number": ('"30"', '"-1"'),
    "a number with a zero in front": ('"30"', '"030"'),
    "too long a number": ('"30"', f'"{"3" * 10}"'),
    "a name in a host": ('"gateway.example.org"', '"gateway.example.org/x"'),
    "words in an emoji": ('"👀"', '"👀👀"'),
    "a name among people": ('ADMINS: ""', 'ADMINS: "somebody"'),
    "no quotation marks": ('"30"', "30"),
    "other quotation marks": ('"30"', "'30'"),
    "another setting in a slot": ("STORE__RETENTION_DAYS", "BASH_ENV"),
    "another kind of slot": ('"30" # slot: number', '"x" # slot: name'),
    "a slot of its own": ("restart: always", 'RESTART: "always" # slot: name'),
    "a comment behind a slot": ("# slot: number", "# slot: number, x"),
    "no comment behind a slot": (" # slot: number", ""),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_change_outside_slots_is_another_bot(attack: str) -> None:
    published, instead = ATTACKS[attack]
    assert PUBLISHED.count(published) == 1
    text = PUBLISHED.replace(published, instead)
    report = verified(text)
    assert report["release"].verdict is Verdict.FAILED
    assert report["environment"].verdict is not Verdict.PROVEN
    with pytest.raises(MalformedEvidence):
        slot_values(PUBLISHED, text)


def test_known_hash_does_not_prove_the_environment_by_itself() -> None:
    agent = SoftAgent(PLATFORM)
    release = soft_release(agent) | {"compose_file": "services: {}\n"}
    report = soft_report(PLATFORM, soft_bundle(PLATFORM, agent), release)
    assert report["environment"].verdict is Verdict.NOT_CHECKED


@settings(max_examples=300, deadline=None)
@given(st.text(st.one_of(st.characters(), st.sampled_from(string.punctuation + " \n")), max_size=9))
def test_no_value_changes_anything_but_its_setting(value: str) -> None:
    for kind in SLOT_KINDS:
        published = f'services:\n  bot:\n    NAME: "" # slot: {kind}\n'
        shown = published.replace('""', f'"{value}"')
        try:
            slot_values(published, shown)
        except MalformedEvidence:
            continue
        assert yaml.safe_load(shown) == {"services": {"bot": {"NAME": value}}}


@pytest.mark.parametrize("kind", SLOT_KINDS)
def test_long_values_take_linear_time(kind: str) -> None:
    for piece in ("a", "1", "a.", "-", f"{ADMIN},", "❤️", "/"):
        shown = f'A: "{piece * 200_000}" # slot: {kind}'
        with pytest.raises(MalformedEvidence):
            slot_values(f' A: "" # slot: {kind}', f" {shown}")
