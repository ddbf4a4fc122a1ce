"""Was every accepted message answered exactly once? Compare the chats on phones with the store."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.soak.model import WORDS
from benchmarks.soak.people import PLAIN, PROGRESS, QUESTION, STRANGERS, Kind, Said
from tests.e2e.stored import copied
from tests.fakes.signal_side import Sent

NEVER_STORED: Final = frozenset({Kind.OVERHEARD, Kind.STRANGER})


@dataclass(frozen=True, slots=True)
class Rows:
    """The messages in a store.

    Attributes:
        outcomes: of every accepted message by its timestamp; None while it waits.
        states: of the parts of answers.
        marked: timestamps that Signal gave to sent messages.
    """

    outcomes: dict[int, str | None]
    states: Counter[str]
    marked: frozenset[int]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the audit.

    Attributes:
        counts: for people.
        faults: sentences; none when all is well.
    """

    counts: dict[str, int]
    faults: list[str]


def read_rows(store: Path) -> Rows:
    """Read a closed store."""
    with copied(store) as database:
        messages: list[tuple[Any, ...]] = database.execute(
            "SELECT timestamp, outcome FROM inbox WHERE kind = 'message'"
        ).fetchall()
        parts: list[tuple[Any, ...]] = database.execute(
            "SELECT state, signal_timestamp FROM outbox"
        ).fetchall()
    return Rows(
        dict(messages),
        Counter(state for state, _ in parts),
        frozenset(timestamp for _, timestamp in parts if timestamp is not None),
    )


def audit(
    said: Sequence[Said],
    sent: Sequence[Sent],
    rows: Rows,
    *,
    notes: Sequence[str] = (),
    excuses: Sequence[tuple[float, float]],
) -> Verdict:
    """Compare written, stored and sent messages.

    Args:
        said: everything that people wrote.
        sent: everything that the bot wrote, in its order.
        rows: the store in the end.
        notes: notes that a tool with side effects has written with permission.
        excuses: from when to when (Signal's time, ms) a send could lose its answer: the bot was
            killed, or its connection. Only then anything may be sent a second time.
    """
    expected = [one for one in said if one.kind not in NEVER_STORED]
    accepted = [one for one in expected if one.timestamp in rows.outcomes]
    answers = [one for one in sent if not one.text.startswith((PROGRESS, QUESTION))]
    repeated = _repeated(answers, rows.marked)
    told = Counter(_words_in(answers, without=repeated))
    faults = [
        *_each("never accepted, without a reason", _missing(expected, rows)),
        *_each("accepted and never answered", _unanswered(accepted, rows)),
        *_each("said to be answered, and nobody got the answer", _unheard(accepted, rows, told)),
        *_each("answered twice", _more_than_once(told.elements())),
        *_each("sent a second time without a reason", _unexcused(repeated, excuses)),
        *_each("run twice, tools with side effects", _more_than_once(notes)),
        *_each("sent to strangers", _to_strangers(sent)),
        *(f"{n} parts of answers are {name}." for name, n in rows.states.items() if name != "sent"),
    ]
    return Verdict(
        {
            "written": len(said),
            "accepted": len(accepted),
            "lost in a socket by kill -9": sum(one.lost for one in expected),
            "sent": len(sent),
            "sent again after a fault": len(repeated),
            "notes written as allowed": len(notes),
            **{f"outcome {name}": n for name, n in sorted(_outcomes(accepted, rows).items())},
        },
        faults,
    )


def _more_than_once(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


def _missing(expected: Iterable[Said], rows: Rows) -> list[str]:
    missing = (one for one in expected if not one.lost and one.timestamp not in rows.outcomes)
    return [f"{one.word()} ({one.kind})" for one in missing]


def _unanswered(accepted: Iterable[Said], rows: Rows) -> list[str]:
    return [one.word() for one in accepted if rows.outcomes[one.timestamp] is None]


def _unheard(accepted: Iterable[Said], rows: Rows, told: Counter[str]) -> list[str]:
    plain = (one for one in accepted if one.kind in PLAIN)
    return [
        f"{one.word()} ({one.kind})"
        for one in plain
        if rows.outcomes[one.timestamp] == "answered" and not told[one.word()]
    ]


def _outcomes(accepted: Iterable[Said], rows: Rows) -> Counter[str]:
    return Counter(str(rows.outcomes[one.timestamp]) for one in accepted)


def _repeated(answers: Sequence[Sent], marked: frozenset[int]) -> list[Sent]:
    """Return messages that were sent, not marked, and sent again."""
    later: defaultdict[tuple[str, str], int] = defaultdict(int)
    repeated = []
    for one in reversed(answers):
        key = (str(one.chat), one.text)
        if one.timestamp not in marked and later[key] and WORDS.search(one.text):
            repeated.append(one)
        later[key] += 1
    return repeated


def _words_in(answers: Iterable[Sent], *, without: Sequence[Sent]) -> Iterable[str]:
    """The words of each answer; the parts of a long one count as one answer."""
    left_out = {one.timestamp for one in without}
    long: set[str] = set()
    for one in answers:
        if one.timestamp in left_out or one.replaces is not None:
            continue
        words = set(WORDS.findall(one.text))
        if "paragraph" in one.text:
            words -= long
            long |= words
        yield from words


def _unexcused(repeated: Iterable[Sent], excuses: Sequence[tuple[float, float]]) -> list[str]:
    return [
        " ".join(WORDS.findall(one.text))
        for one in repeated
        if not any(begin <= one.timestamp <= end for begin, end in excuses)
    ]


def _to_strangers(sent: Iterable[Sent]) -> list[str]:
    strangers = {stranger.aci for stranger in STRANGERS}
    return [str(one.timestamp) for one in sent if one.chat.value in strangers]


def _each(what: str, names: Iterable[str]) -> list[str]:
    found = list(names)
    return [f"{len(found)} {what}: {', '.join(found[:10])}."] if found else []
