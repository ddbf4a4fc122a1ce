"""The file of pins: its format, and refusals of anything else."""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.pins import MAX_PINS_BYTES, ModelPins, pins_sha256
from tests.fakes.some_pins import SOME_PINS, SOME_PINS_TEXT

Json = dict[str, Any]


def changed(change: Callable[[Json], object]) -> str:
    pins = json.loads(SOME_PINS_TEXT)
    change(pins)
    return json.dumps(pins)


def test_hash_of_pins_does_not_depend_on_their_layout() -> None:
    spread_out = json.dumps(SOME_PINS, indent=4, sort_keys=True)
    one, other = ModelPins.parse(SOME_PINS_TEXT), ModelPins.parse(spread_out.encode())
    assert pins_sha256(one.text()) == pins_sha256(other.text())
    assert ModelPins.parse(one.text()) == one


def test_pins_for_a_models_own_endpoint_name_no_gateway() -> None:
    assert ModelPins.parse(changed(lambda p: p.pop("gateway"))).gateway is None


WRONG: Final[dict[str, str]] = {
    "nothing": "",
    "a list": "[]",
    "no JSON": "{",
    "depths": "[" * 50_000,
    "too much": " " * (MAX_PINS_BYTES + 1),
    "a newer version": changed(lambda p: p.update(v=2)),
    "a version that is true": changed(lambda p: p.update(v=True)),
    "another kind": changed(lambda p: p.update(type="signal-bot-release")),
    "a word more": changed(lambda p: p.update(accept="all")),
    "a key twice": SOME_PINS_TEXT.replace('"v"', '"v": 1, "v"', 1),
    "no model": changed(lambda p: p.pop("model")),
    "no systems": changed(lambda p: p["model"].update(systems=[])),
    "no applications": changed(lambda p: p["model"].update(applications=[])),
    "no key service": changed(lambda p: p.update(kms_ids=[])),
    "an empty key service": changed(lambda p: p.update(kms_ids=[""])),
    "an application without a name": changed(lambda p: p["model"].update(applications=[{}])),
    "an application with two names": changed(
        lambda p: p["model"].update(applications=[{"compose_hash": "ab" * 32, "app_id": "cd" * 20}])
    ),
    "a hash in capitals": changed(
        lambda p: p["model"].update(applications=[{"compose_hash": "AB" * 32}])
    ),
    "a hash with a line break": changed(
        lambda p: p["model"].update(applications=[{"compose_hash": "ab" * 32 + "\n"}])
    ),
    "a pattern": changed(lambda p: p["model"].update(applications=[{"app_id": ".*"}])),
    "digits of another script": changed(
        lambda p: p["model"]["systems"][0].update(mrtd="\u0660" * 96)
    ),
    "a measurement too short": changed(lambda p: p["model"]["systems"][0].update(mrtd="00")),
    "a measurement that is missing": changed(lambda p: p["model"]["systems"][0].pop("rtmr2")),
    "a label that draws": changed(lambda p: p["model"]["systems"][0].update(label="\x1b[2J")),
    "half a character": SOME_PINS_TEXT.replace("the model's", "\\ud800"),
}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_pins_are_refused(name: str) -> None:
    with pytest.raises(MalformedEvidence):
        ModelPins.parse(WRONG[name])
