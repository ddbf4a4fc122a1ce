"""docs/SIGNAL.md and docs/ACCESS.md do what they say: values and answers are the program's.

`test_documents.py` checks commands, settings and links of all pages.
"""

import re
from pathlib import Path
from typing import Final

from bot.config.loading import load_settings
from bot.signal.errors import SignalUnavailable
from bot.signal.registration import Reason, registration_error
from bot.signal.spawned import SOCKET_NAME, SOCKET_PATH_BYTES
from tests.fakes.registering import OFFLINE

DOCS: Final = Path(__file__).parents[2] / "docs"
DOCUMENT: Final = (DOCS / "SIGNAL.md").read_text()
ACCESS: Final = (DOCS / "ACCESS.md").read_text()


def test_every_value_of_the_document_is_taken() -> None:
    values = dict(re.findall(r"`([A-Z]+__[A-Z_]+)=([^`]+)`", DOCUMENT))
    assert values == {"ACCESS__NOTE_TO_SELF": "true"}
    urls = ["spawn:", "unix:/path/to/socket", "tcp://host:8080", "http://host:8080"]
    for url in urls:
        assert url.replace("8080", "port") in DOCUMENT
        load_settings({"signal": {"url": url, "phone_number": "+4915112345678"}})


def test_every_policy_of_access_is_taken() -> None:
    for policy in ("pairing", "allowlist", "open"):
        assert f"- `{policy}`" in ACCESS
        load_settings({"signal": {"phone_number": "+4915112345678"}, "access": {"policy": policy}})
    for trust in ("tofu", "always", "verified"):
        assert f"- `{trust}`" in ACCESS
        load_settings({"signal": {"phone_number": "+4915112345678", "trust": trust}})


def test_answers_of_signal_are_those_of_the_program() -> None:
    section = DOCUMENT.split("| it says | do |")[1].split("\n\n")[0]
    shown = re.findall(r"^\| ([A-Zs].*?) \|", section, re.MULTILINE)
    said = [
        *Reason,
        str(registration_error("Rate limit reached")),
        str(registration_error(OFFLINE)),
    ]
    assert len(shown) == 7
    for words in shown:
        assert any(sentence.startswith(words) for sentence in said), words
    assert isinstance(registration_error(OFFLINE), SignalUnavailable)


def test_name_and_limit_of_the_socket_are_right() -> None:
    assert f"`{SOCKET_NAME}`" in DOCUMENT
    assert f"at most {SOCKET_PATH_BYTES} bytes" in " ".join(DOCUMENT.split())
