"""Arguments as weaker models write them are read as they are meant."""

import json

import pytest

from tools.calculator.tool import in_ascii
from tools.commands import run_python
from tools.schema import tool_from

PYTHON = tool_from(run_python, given={"run": lambda _: None})


@pytest.mark.parametrize("fence", ["```python\n{}\n```", "```\n{}\n```\n"])
def test_fence_around_a_program_is_no_part_of_it(fence: str) -> None:
    code = "print(1)\nprint(2)"
    assert PYTHON.parse(json.dumps({"code": fence.format(code)})).code == code


def test_fence_inside_a_program_stays() -> None:
    code = "x = '''\n```\n'''"
    assert PYTHON.parse(json.dumps({"code": code})).code == code


def test_null_as_text_means_the_default_of_an_optional_argument() -> None:
    assert PYTHON.parse('{"code": "null", "timeout_seconds": "null"}').code == "null"


@pytest.mark.parametrize(
    ("written", "read"),
    [("\u0662+\u0663", "2+3"), ("\u06f1\u06f5\u066a of \u0662\u066b\u0665", "15% of 2.5")],
)
def test_digits_of_other_scripts_are_numbers(written: str, read: str) -> None:
    assert in_ascii(written) == read
