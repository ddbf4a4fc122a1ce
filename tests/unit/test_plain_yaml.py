"""The YAML that every parser reads in the same way, and nothing else."""

from typing import Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.attestation.errors import MalformedEvidence
from bot.attestation.plain_yaml import (
    MAX_CHARS,
    MAX_DEPTH,
    MAX_LINE_CHARS,
    MAX_LINES,
    Mapping,
    Node,
    Scalar,
    parse,
)

FILE: Final = """\
# A comment.
services:

  bot: # another
    image: 'example/bot'   # and one more
    command: [run, --fast, "two words", {a: b, c: [d]}, [], {}]
    environment:
      A: unix:/run/x
      B: "30"
      C: it's {fine}, [really] & so on # but this is not
      D: ${SECRET}
      E: ""
    volumes:
    - data:/data
    - type: bind
      source: /x
      bind: {create_host_path: false}
    - --flag
    limits: 1g
    count: 3
    share: 0.5
volumes:
  data:
"""


def plain(node: Node | None) -> object:
    """What PyYAML's BaseLoader would return."""
    match node:
        case None:
            return ""
        case Scalar():
            return node.text
        case Mapping():
            return {key: plain(value) for key, value in node.entries.items()}
        case _:
            return [plain(item) for item in node.items]


def typed(node: Node | None) -> object:
    """The same with what is a text to nobody set apart, as PyYAML's SafeLoader has it."""
    match node:
        case None:
            return None
        case Scalar():
            return node.text if node.is_text else yaml.safe_load(node.text)
        case Mapping():
            return {key: typed(value) for key, value in node.entries.items()}
        case _:
            return [typed(item) for item in node.items]


def test_a_file_means_what_it_means_to_other_parsers_with_the_lines_of_its_keys() -> None:
    tree = parse(FILE)
    assert plain(tree) == yaml.load(FILE, yaml.BaseLoader)
    assert typed(tree) == yaml.safe_load(FILE)
    assert tree.lines == {"services": 2, "volumes": 22}


REFUSED: Final = {
    "an anchor": "a: &x b",
    "an alias": "a: *x",
    "an alias as a key": "*x : a",
    "a merge": "<<: {a: b}",
    "a merge in braces": "a: {<<: {b: c}}",
    "a tag": "a: !!str b",
    "a tag of its own": "a: !reset b",
    "a directive": "%YAML 1.1\n---\na: b",
    "a document's start": "---\na: b",
    "a document's end": "a: b\n...",
    "two documents": "a: b\n---\na: c",
    "a block text": "a: |\n  b\n  c",
    "a folded text": "a: >\n  b",
    "a text over two lines": "a: b\n  c",
    "a quoted text over two lines": 'a: "b\n  c"',
    "a list over two lines": "a: [b,\n  c]",
    "an escape": r'a: "\x24{B}"',
    "an escaped quotation mark": r'a: "b\"c"',
    "a doubled quotation mark": "a: 'it''s'",
    "an escape in a key": r'"\x61": b',
    "a quoted key": '"a": b',
    "an explicit key": "? a\n: b",
    "a list as a key": "[a]: b",
    "a number as a key": "1: a",
    "a truth as a key": "on: a",
    "a negation as a key": "No: a",
    "nothing as a key": "null: a",
    "a truth as a key in braces": "a: {y: b}",
    "a long key": f"{'a' * 129}: b",
    "a long key in braces": f"a: {{{'b' * 129}: c}}",
    "a repeated key": "a: b\na: c",
    "a repeated key in braces": "a: {b: c, b: d}",
    "a repeated key in a list": "a:\n  - b: c\n    b: d",
    "a key without a blank": "a:b",
    "a tab": "a:\tb",
    "a tab as indentation": "a:\n\tb: c",
    "a carriage return": "a: b\r\nc: d",
    "a line break of old": "a: b # \x85c: d",
    "a line break of Unicode's": "a: b # \u2028c: d",
    "a mark of byte order": "\ufeffa: b",
    "a blank that does not break": "a:\u00a0b",
    "another alphabet": "a: b\u0435",
    "a dollar sign of another alphabet": "a: \uff04{B}",
    "letters that turn around": "a: b # \u202ec",
    "a control character": "a: b\x00",
    "yes": "a: yes",
    "No": "a: No",
    "off": "a: off",
    "y": "a: [y]",
    "nothing": "a: null",
    "a wave": "a: ~",
    "True": "a: True",
    "an octal number": "a: 0755",
    "a new octal number": "a: 0o17",
    "a hexadecimal number": "a: 0x1F",
    "a number of sixties": "a: 1:30",
    "a user and group": "a: 1000:10",
    "a number with underscores": "a: 1_000",
    "an exponent": "a: 1e3",
    "a negative number": "a: -5",
    "a signed number": "a: +5",
    "infinity": "a: .inf",
    "a date": "a: 2026-06-29",
    "an address": "a: 127.0.0.1",
    "a text with a colon": "a: b: c",
    "a text that ends with a colon": "a: b:",
    "an equals sign": "a: =",
    "an at sign": "a: @b",
    "a backtick": "a: `b`",
    "a question mark": "a: ?b",
    "a percent sign": "a: %b",
    "an unclosed list": "a: [b",
    "an unclosed text": 'a: "b',
    "a comma too many": "a: [b, ]",
    "a comma alone": "a: [,]",
    "a list without blanks": "a: [b,c]",
    "a key without a value in braces": "a: {b}",
    "a pair in a list": "a: [b: c]",
    "something behind a text": 'a: "b"c',
    "a comment without a blank": 'a: "b"#c',
    "a list in a list": "a:\n  - - b",
    "a list below its dash": "a:\n  -\n    b: c",
    "two blanks behind a dash": "a:\n  -  b: c",
    "another indentation": "a:\n    b: c\n  d: e",
    "indentation at the start": "  a: b",
    "a list at the top": "- a",
    "a text at the top": "a",
    "a list within a mapping": "a: b\n- c",
    "braces at the top": "{a: b}",
    "nothing at all": "",
    "comments alone": "# a\n",
    "depth in lines": "\n".join(f"{'  ' * n}a:" for n in range(MAX_DEPTH + 2)),
    "depth in brackets": "a: " + "[" * 1000,
    "depth in braces": "a: " + "{b: " * 1000,
    "length": "#" * (MAX_CHARS + 1),
    "lines": "\n" * MAX_LINES,
    "a long line": f"a: {'b' * MAX_LINE_CHARS}",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_parsers_may_read_otherwise_is_refused(name: str) -> None:
    with pytest.raises(MalformedEvidence, match=r"^(line \d+: |it has more than)"):
        parse(REFUSED[name])


def test_a_refusal_names_the_line() -> None:
    with pytest.raises(MalformedEvidence, match="line 3: the key a stands twice in one place"):
        parse("a: b\n\na: c\n")


_PIECES: Final = (
    *"ab01 :-#[]{},&*!|>'\"%@`?$./\\~=<\n\t",
    "\n  ", "\n    ", "- ", ": ", "a: ", "b:", ", ", "yes", "null", "${A}", "<<: ",
    "---", "0x1", "1e3", "é", "\u2028", "\r\n", " #", "1g", "0.5", "--x",
)  # fmt: skip


_TEXTS: Final = st.lists(st.sampled_from(_PIECES), max_size=14).map("".join)


def compare_with_pyyaml(text: str) -> None:
    try:
        tree = parse(text)
    except MalformedEvidence:
        return
    assert plain(tree) == yaml.load(text, yaml.BaseLoader)
    assert typed(tree) == yaml.safe_load(text)


@settings(max_examples=200, deadline=None)
@given(_TEXTS)
def test_whatever_is_read_pyyaml_reads_in_the_same_way(text: str) -> None:
    compare_with_pyyaml(f"a: {text}")


@pytest.mark.full
@settings(max_examples=8_000, deadline=None)
@given(_TEXTS, st.sampled_from(["a: ", "", "a:\n  - ", "a: [", "a: {b: "]))
def test_whatever_is_read_pyyaml_reads_in_the_same_way_long(text: str, before: str) -> None:
    compare_with_pyyaml(before + text)
