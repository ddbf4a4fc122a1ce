"""The part of YAML that every parser reads in the same way.

A file that is measured means what the parser inside the machine makes of it: Docker Compose's, in
Go. Python's may read something else there, because YAML 1.1 and 1.2 differ and so do their
implementations. So this is no YAML parser but a much smaller one. It reads:

- block mappings and lists by indentation, `key: value` and `- value`;
- `[…]` and `{…}` within one line;
- plain and quoted text within one line, without escapes;
- comments, blank lines, printable ASCII.

Everything else is refused with its line: anchors, aliases, merges, tags, directives, several
documents, block and folded text, escapes, explicit and repeated keys, tabs, other line breaks,
other alphabets, and words that are a number, a date, a truth or nothing to some parsers and text to
others. The tests compare what is read here with what PyYAML reads.
"""

import re
from dataclasses import dataclass
from typing import Final

from bot.attestation.errors import MalformedEvidence

MAX_CHARS: Final = 128 * 1024
MAX_LINES: Final = 4000
MAX_LINE_CHARS: Final = 80 * 1024
MAX_DEPTH: Final = 8

_LINE: Final = re.compile("[ -~]*")
_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_QUOTED: Final = re.compile(r"\"([^\"\\]*)\"|'([^']*)'")
_FLOW_PLAIN: Final = re.compile("[A-Za-z0-9_./-]+")
_PLAIN_START: Final = re.compile("[A-Za-z0-9/$_]|--?[A-Za-z]")
_END: Final = re.compile("( +(#.*)?)?")
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "null", "true", "false"})
"""Truths and nothing, in any case, to some version of YAML."""
_TRUTHS: Final = frozenset({"true", "false"})
_NUMBER: Final = re.compile(r"(0|[1-9][0-9]{0,14})(\.[0-9]{1,6})?")
_AMOUNT: Final = re.compile("([0-9]+(ms|us|[kmg]b|[bkmgsh]))+")
"""Sizes and durations: they begin like a number, but no parser takes them for one."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text, or a number or truth as it is written.

    Attributes:
        text: what it says.
        line: where it stands, from 1.
        is_text: whether every parser takes it for a text.
    """

    text: str
    line: int
    is_text: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    items: tuple["Node", ...]
    line: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """Values by their keys; a key without a value has None.

    Attributes:
        entries: the values, in the order of the file.
        lines: where each key stands, from 1.
        line: where the first one stands.
    """

    entries: dict[str, "Node | None"]
    lines: dict[str, int]
    line: int


Node = Scalar | Sequence | Mapping


def parse(text: str) -> Mapping:
    """Read a file whose outermost node is a mapping.

    Raises:
        MalformedEvidence: it is longer, deeper or written otherwise than this reads; names the
            line.
    """
    if len(text) > MAX_CHARS:
        raise MalformedEvidence(f"it has more than {MAX_CHARS} characters")
    raw = text.split("\n")
    if len(raw) > MAX_LINES:
        raise MalformedEvidence(f"it has more than {MAX_LINES} lines")
    reader = _Reader([line for number, each in enumerate(raw, 1) for line in _line(each, number)])
    tree = reader.mapping(0, 1)
    if reader.current is not None:
        raise _refused(reader.current.number, "is indented otherwise than what it follows")
    return tree


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    indent: int
    content: str


def _refused(line: int, why: str) -> MalformedEvidence:
    return MalformedEvidence(f"line {line}: {why}")


def _line(raw: str, number: int) -> list[_Line]:
    """Return the line without comment and indentation, or nothing where nothing is left."""
    if len(raw) > MAX_LINE_CHARS:
        raise _refused(number, f"has more than {MAX_LINE_CHARS} characters")
    if not _LINE.fullmatch(raw):
        raise _refused(number, "only printable ASCII characters and plain line breaks may be here")
    content = raw.lstrip(" ")
    if not content or content.startswith("#"):
        return []
    return [_Line(number, len(raw) - len(content), content.rstrip(" "))]


class _Reader:
    """Takes lines from the front; each method reads one block at its indentation."""

    def __init__(self, lines: list[_Line]) -> None:
        self._lines = lines
        self._at = 0

    @property
    def current(self) -> _Line | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    def mapping(self, indent: int, depth: int) -> Mapping:
        entries: dict[str, Node | None] = {}
        lines: dict[str, int] = {}
        while (line := self.current) is not None and line.indent == indent:
            if _is_item(line.content):
                break
            key, rest = _split_key(line)
            if key in entries:
                raise _refused(line.number, f"the key {key} stands twice in one place")
            lines[key] = line.number
            self._at += 1
            entries[key] = self._value(rest, line, depth)
        first = next(iter(lines.values()), 0)
        if not first:
            number = self.current.number if self.current else 1
            raise _refused(number, "keys with values are expected")
        return Mapping(entries, lines, first)

    def _value(self, rest: str, line: _Line, depth: int) -> Node | None:
        """Read what follows `key:`, on its line or indented below."""
        if depth >= MAX_DEPTH:
            raise _refused(line.number, f"is nested more than {MAX_DEPTH} deep")
        if rest:
            return _inline(rest, line.number, depth)
        below = self.current
        if below is None or below.indent < line.indent:
            return None
        if _is_item(below.content):
            return self._sequence(below.indent, depth + 1)
        return self.mapping(below.indent, depth + 1) if below.indent > line.indent else None

    def _sequence(self, indent: int, depth: int) -> Sequence:
        first = self._lines[self._at].number
        items: list[Node] = []
        while (line := self.current) is not None and line.indent == indent:
            if not _is_item(line.content):
                break
            items.append(self._item(line, depth))
        return Sequence(tuple(items), first)

    def _item(self, line: _Line, depth: int) -> Node:
        content = line.content[2:]
        if not content or content.startswith(" ") or _is_item(content):
            raise _refused(line.number, "a list's value stands on its line, after one space")
        if _KEY_AND_VALUE.match(content):
            # `- key: value` opens a mapping whose further keys stand below the first one.
            self._lines[self._at] = _Line(line.number, line.indent + 2, content)
            return self.mapping(line.indent + 2, depth + 1)
        self._at += 1
        return _inline(content, line.number, depth)


_KEY_AND_VALUE: Final = re.compile(rf"({_KEY.pattern}):(?: +(?=[^ ])|$)")


def _is_item(content: str) -> bool:
    return content == "-" or content.startswith("- ")


def _split_key(line: _Line) -> tuple[str, str]:
    found = _KEY_AND_VALUE.match(line.content)
    if found is None:
        raise _refused(line.number, "is not of the form `key: value` with a plain key")
    rest = line.content[found.end() :]
    return _key(found[1], line.number), "" if rest.startswith("#") else rest


def _key(name: str, line: int) -> str:
    if name.lower() in _WORDS:
        raise _refused(line, f"the key {name} is no text to some parsers")
    return name


def _inline(text: str, line: int, depth: int) -> Node:
    """Read a value that stands on one line, and what may follow it: a comment."""
    if text[0] in "[{\"'":
        node, rest = _flow(text, line, depth)
        if not _END.fullmatch(rest):
            raise _refused(line, "something follows the value")
        return node
    plain = text.partition(" #")[0].rstrip(" ")
    if ": " in plain or plain.endswith(":") or not _PLAIN_START.match(plain):
        raise _refused(
            line,
            "is no text on one line, plain or in quotes; no anchor, alias or tag may be there",
        )
    return _plain(plain, line)


def _flow(text: str, line: int, depth: int) -> tuple[Node, str]:
    """Read a value at the front of a text within brackets; return it and what follows."""
    if depth >= MAX_DEPTH:
        raise _refused(line, f"is nested more than {MAX_DEPTH} deep")
    if quoted := _QUOTED.match(text):
        return Scalar(quoted[1] or quoted[2] or "", line, is_text=True), text[quoted.end() :]
    if text.startswith("["):
        return _flow_sequence(text[1:].lstrip(" "), line, depth + 1)
    if text.startswith("{"):
        return _flow_mapping(text[1:].lstrip(" "), line, depth + 1)
    plain = _FLOW_PLAIN.match(text)
    if plain is None or not _PLAIN_START.match(text):
        raise _refused(line, "between brackets stand plain words, texts in quotes, brackets")
    return _plain(plain[0], line), text[plain.end() :]


def _flow_sequence(text: str, line: int, depth: int) -> tuple[Sequence, str]:
    items: list[Node] = []
    ended, text = text.startswith("]"), text.removeprefix("]")
    while not ended:
        item, text = _flow(text, line, depth)
        items.append(item)
        ended, text = _after_value(text, "]", line)
    return Sequence(tuple(items), line), text


def _flow_mapping(text: str, line: int, depth: int) -> tuple[Mapping, str]:
    entries: dict[str, Node | None] = {}
    ended, text = text.startswith("}"), text.removeprefix("}")
    while not ended:
        key = _KEY.match(text)
        if key is None or not text.startswith(": ", key.end()):
            raise _refused(line, "between braces stands `key: value`")
        if key[0] in entries:
            raise _refused(line, f"the key {key[0]} stands twice in one place")
        value, text = _flow(text[key.end() + 2 :].lstrip(" "), line, depth)
        entries[_key(key[0], line)] = value
        ended, text = _after_value(text, "}", line)
    return Mapping(entries, dict.fromkeys(entries, line), line), text


def _after_value(text: str, end: str, line: int) -> tuple[bool, str]:
    """Take the comma or the end that follows a value; return whether it ended, and the rest."""
    text = text.lstrip(" ")
    if text.startswith(end):
        return True, text[1:]
    if text.startswith(", "):
        return False, text[2:].lstrip(" ")
    raise _refused(line, f"a comma with a space or {end} is expected after a value")


def _plain(text: str, line: int) -> Scalar:
    if text in _TRUTHS or _NUMBER.fullmatch(text):
        return Scalar(text, line, is_text=False)
    if text.lower() in _WORDS or (text[0].isdigit() and not _AMOUNT.fullmatch(text)):
        raise _refused(line, "parsers do not agree whether this is a text: it stands in quotes")
    return Scalar(text, line, is_text=True)
