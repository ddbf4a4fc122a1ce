"""JSON of strangers: ambiguous documents are refused."""

import pytest

from bot.attestation.errors import MalformedEvidence
from bot.attestation.strict_json import decode


@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}',
        "[Infinity]",
        "-Infinity",
        '{"a": {"b": 1, "b": 1}}',
        '{"a": 1, "\\u0061": 2}',
        "[" * 100_000,
        b'"\xff"',
        b"\xef\xbb\xbf{}",
    ],
    ids=[
        "no number",
        "infinite",
        "less than all",
        "twice",
        "twice, escaped",
        "deep",
        "bytes",
        "BOM",
    ],
)
def test_ambiguous_json_is_malformed(text: str | bytes) -> None:
    with pytest.raises(MalformedEvidence, match="the file is not readable"):
        decode(text, "the file")


def test_a_key_may_stand_in_two_objects() -> None:
    assert decode(b'[{"a": 1}, {"a": {"a": 2}}]', "the file") == [{"a": 1}, {"a": {"a": 2}}]
