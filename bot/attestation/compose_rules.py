"""Forms of values in a Compose file: what a rule is, and the rules that others are made of."""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from bot.attestation.plain_yaml import Mapping, Node, Scalar, Sequence

_NAME: Final = re.compile("[A-Za-z][A-Za-z0-9_-]{0,62}")


@dataclass(slots=True)
class ComposeFile:
    """What rules have to know of the file as a whole.

    Attributes:
        allowed_envs: the variables that app-compose.json lets in.
        services, volumes, networks: their names.
        agents: services that have the guest agent's socket.
    """

    allowed_envs: Collection[str]
    services: Collection[str] = ()
    volumes: Collection[str] = ()
    networks: Collection[str] = ()
    agents: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands."""

    file: ComposeFile
    line: int = 1
    path: str = ""

    def below(self, name: str, line: int) -> "Place":
        """Return the place of a key or an item inside this one."""
        return replace(self, line=line, path=f"{self.path}.{name}" if self.path else name)

    def refused(self, why: str) -> str:
        """Return what is said of a value that is refused."""
        return f"line {self.line}, {self.path or 'the file'}: {why}"


Rule = Callable[[Node | None, Place], Iterator[str]]
"""Yields a sentence for everything about a value that is not on the list."""


def text(pattern: str, expected: str) -> Rule:
    """A text that every parser takes for one."""

    def rule(node: Node | None, place: Place) -> Iterator[str]:
        is_right = isinstance(node, Scalar) and node.is_text and re.fullmatch(pattern, node.text)
        if not is_right:
            yield place.refused(f"{expected} is expected")

    return rule


def value(pattern: str, expected: str) -> Rule:
    """A text or a number."""

    def rule(node: Node | None, place: Place) -> Iterator[str]:
        if not isinstance(node, Scalar) or not re.fullmatch(pattern, node.text):
            yield place.refused(f"{expected} is expected")

    return rule


def truth(node: Node | None, place: Place) -> Iterator[str]:
    """A truth value."""
    if not isinstance(node, Scalar) or node.is_text or node.text not in {"true", "false"}:
        yield place.refused("true or false is expected")


def list_of(rule: Rule) -> Rule:
    """A list of values of one form."""

    def list_rule(node: Node | None, place: Place) -> Iterator[str]:
        if not isinstance(node, Sequence):
            yield place.refused("a list is expected")
            return
        for number, item in enumerate(node.items):
            yield from rule(item, place.below(str(number), item.line))

    return list_rule


def keyed(rules: dict[str, Rule], *, required: tuple[str, ...] = ()) -> Rule:
    """A mapping with no other keys than these."""

    def rule(node: Node | None, place: Place) -> Iterator[str]:
        if not isinstance(node, Mapping):
            yield place.refused("keys with values are expected")
            return
        for name, value in node.entries.items():
            here = place.below(name, node.lines[name])
            if name in rules:
                yield from rules[name](value, here)
            else:
                yield here.refused("is not on the list of what may stand there")
        for name in required:
            if name not in node.entries:
                yield place.refused(f"has no {name}")

    return rule


def named(rule: Rule, *, shortest: int = 1) -> Rule:
    """A mapping from names, of so many characters at least, to values of one form."""

    def named_rule(node: Node | None, place: Place) -> Iterator[str]:
        if not isinstance(node, Mapping):
            yield place.refused("names with values are expected")
            return
        for name, value in node.entries.items():
            here = place.below(name, node.lines[name])
            if not _NAME.fullmatch(name) or len(name) < shortest:
                yield here.refused(f"a plain name of {shortest} or more characters is expected")
            yield from rule(value, here)

    return named_rule


def or_nothing(rule: Rule) -> Rule:
    """A value of one form, or none."""

    def optional_rule(node: Node | None, place: Place) -> Iterator[str]:
        if node is not None:
            yield from rule(node, place)

    return optional_rule


def by_shape(*, of_list: Rule, of_mapping: Callable[[Mapping, Place], Iterator[str]]) -> Rule:
    """What may be written as a list or as a mapping."""

    def rule(node: Node | None, place: Place) -> Iterator[str]:
        return of_mapping(node, place) if isinstance(node, Mapping) else of_list(node, place)

    return rule
