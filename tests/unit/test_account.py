"""Conditions for a file to be attached to a message."""

import pytest

from conversation_store.models import MAX_ATTACHMENT_BYTES, Attachment


def test_a_file_becomes_a_data_uri_with_its_name() -> None:
    attachment = Attachment("proof-1.json", "application/json", b"\x00\xff{}")
    assert attachment.data_uri == "data:application/json;filename=proof-1.json;base64,AP97fQ=="


@pytest.mark.parametrize(
    "name",
    ["", ".", ".hidden", "-x", "a b", "a/b", "a;b", "a,b", "a\n", "a%2f", "ä", "a_b", "x" * 101],
)
def test_a_name_that_could_mean_more_than_a_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="letters, digits, dots and hyphens"):
        Attachment(name, "application/json", b"")


@pytest.mark.parametrize(
    "content_type", ["", "text", "text/", "text/plain;charset=utf-8", "text/plain\n", "Text/Plain"]
)
def test_a_type_with_parameters_is_refused(content_type: str) -> None:
    with pytest.raises(ValueError, match="without parameters"):
        Attachment("a", content_type, b"")


def test_a_file_is_bounded_and_never_shown() -> None:
    largest = bytes(MAX_ATTACHMENT_BYTES)
    assert len(repr(Attachment("a", "text/plain", largest))) < 100
    with pytest.raises(ValueError, match="8 MiB"):
        Attachment("a", "text/plain", largest + b"\0")
