"""Numbered lines of files and documents, as the model reads them."""

from collections.abc import Iterator

import pytest

from tools.sandbox.errors import WorkError
from tools.workspace.inside.reading import numbered


class LongDocument(list[str]):
    """Lines that may be sliced, but not iterated over."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all lines were read")


LINES = LongDocument(["a line"] * 10)


def test_only_the_shown_part_of_a_document_is_numbered() -> None:
    assert numbered("a.pdf", LINES, 3, 2, "2 tables left out") == (
        "3\ta line\n4\ta line\n[6 more lines; go on at offset 5.]\n[2 tables left out]"
    )


def test_offset_beyond_the_last_line_names_the_file() -> None:
    with pytest.raises(WorkError, match=r"a\.pdf has 10 lines, and no more"):
        numbered("a.pdf", LINES, 11, 1, "")
