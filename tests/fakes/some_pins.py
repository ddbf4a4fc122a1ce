"""Pins of invented machines, for code that only passes them on."""

import json
from typing import Any, Final

_ZEROS: Final = dict.fromkeys(("mrtd", "rtmr0", "rtmr1", "rtmr2"), "00" * 48)

SOME_PINS: Final[dict[str, Any]] = {
    "type": "signal-bot-model-pins",
    "v": 1,
    "gateway": {
        "systems": [{"label": "the gateway's, $1", **_ZEROS}],
        "applications": [{"compose_hash": "ab" * 32}],
    },
    "model": {
        "systems": [{"label": "the model's", **_ZEROS, "rtmr0": "11" * 48}],
        "applications": [{"app_id": "cd" * 20}],
    },
    "kms_ids": ["ee"],
}
SOME_PINS_TEXT: Final = json.dumps(SOME_PINS)
