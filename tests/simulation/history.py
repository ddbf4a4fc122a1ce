"""Histories: what happens in a world, drawn from a seed before it begins.

A history is a list of events. Each event stands for itself, so a history stays valid when some of
its events are dropped: that is how a failure becomes short.
"""

from collections.abc import Callable  # noqa: TC003 - as in the other modules
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.simulation.mind import KINDS, Mood
from tests.simulation.phones import Receipts
from tests.simulation.signal_network import Fault

SECONDS: Final = 60.0
FAULTS: Final = tuple(fault for fault in Fault if fault is not Fault.NONE)
ILLS: Final = ("full", "read-only", "io", "slow")
TROUBLES: Final = (
    *("kills",) * 3, "stops", *("spoils",) * 3, *("irritates",) * 2, "ails", "turns_clock",
    "restarts_signal", "cuts", *("repeats",) * 2,
)  # fmt: skip
COMMANDS: Final = (
    "!clear", "!stop", "!undo", "!retry", "!memory", "!memory forget all", "!memory off",
    "!memory on", "!instructions answer briefly", "!instructions off", "!language german",
    "!language english", "!reminders", "!reminders cancel 1", "!timezone Berlin", "!grants",
    "!status", "!find word", "!sent", "!help", "!catchup on", "!catchup off", "!usage", "!nonsense",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens at a time.

    Attributes:
        at: virtual seconds from the beginning.
        kind: a method of `World`.
        what: its arguments.
    """

    at: float
    kind: str
    what: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        what = " ".join(f"{name}={value}" for name, value in self.what)
        return f"{self.at:7.3f}  {self.kind}  {what}"


@dataclass(frozen=True, slots=True)
class History:
    """All that is drawn before a world begins.

    Attributes:
        over_rest: the bot uses signal-cli-rest-api.
        long: the world stays quiet for very long in the end.
    """

    seed: int
    people: int
    groups: int
    over_rest: bool
    long: bool
    events: tuple[Event, ...]


def history(seed: int) -> History:
    """Draw a history."""
    rng = Random(f"history {seed}")
    people, groups = rng.randint(1, 5), rng.choice((0, 0, 1, 2))
    over_rest = rng.random() < 0.2
    draw = _Drawing(rng, people, groups, over_rest=over_rest)
    events = sorted(draw.events(), key=lambda event: event.at)
    return History(seed, people, groups, over_rest, rng.random() < 0.05, tuple(events))


class _Drawing:
    """Draws events; the seed also decides how wild the world is."""

    def __init__(self, rng: Random, people: int, groups: int, *, over_rest: bool) -> None:
        self._rng, self._people, self._groups, self._over_rest = rng, people, groups, over_rest
        self._marks = 0
        self._faulty = rng.random()

    def events(self) -> list[Event]:
        rng = self._rng
        events: list[Event] = []
        for _ in range(rng.randint(2, 9)):
            events += self._of_people(rng.uniform(0.5, SECONDS * 0.7))
        for _ in range(round(rng.uniform(0, 6) * self._faulty)):
            events += self._trouble(rng.uniform(0.0, SECONDS * 0.8))
        return events

    def _of_people(self, at: float) -> list[Event]:
        rng = self._rng
        who = rng.randrange(self._people)
        group = rng.randrange(self._groups) if self._groups and rng.random() < 0.4 else None
        place = (("who", who), ("group", group))
        roll = rng.random()
        if roll < 0.62:
            return self._conversation(at, place)
        if roll < 0.72:
            return [
                Event(at, "edits", (*place, ("pick", rng.randrange(3)), ("mark", self._mark())))
            ]
        if roll < 0.80:
            return [Event(at, "deletes", (*place, ("pick", rng.randrange(3))))]
        if roll < 0.92:
            return [Event(at, "commands", (*place, ("text", rng.choice(COMMANDS))))]
        if roll < 0.96:
            return [Event(at, "confirms", (("who", who), ("how", rng.choice(list(Receipts)).name)))]
        return [Event(at, "reacts", (*place, ("emoji", rng.choice("👍👎❤"))))]

    def _conversation(self, at: float, place: tuple[tuple[str, Any], ...]) -> list[Event]:
        rng = self._rng
        events = []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            kind = rng.choice(KINDS) if rng.random() < 0.6 else "plain"
            what: tuple[tuple[str, Any], ...] = (*place, ("mark", self._mark()), ("work", kind))
            if rng.random() < 0.08:
                what = (*what, ("timer", rng.choice((5, 30))))
            if rng.random() < 0.05:
                what = (*what, ("file", True))
            events.append(Event(at, "says", what))
            at += rng.choice((0.01, 0.1, 0.5, 3.0)) * rng.random()
        if rng.random() < 0.3:  # soon after it
            at += rng.choice((0.05, 0.5, 4.0)) * rng.random()
            events += self._second_thought(at, place)
        return events

    def _second_thought(self, at: float, place: tuple[tuple[str, Any], ...]) -> list[Event]:
        rng = self._rng
        match rng.randrange(4):
            case 0:
                return [Event(at, "edits", (*place, ("pick", 0), ("mark", self._mark())))]
            case 1:
                return [Event(at, "deletes", (*place, ("pick", 0)))]
            case 2:
                return [Event(at, "commands", (*place, ("text", rng.choice(COMMANDS[:4]))))]
        return [Event(at, "kills", self._kill())]

    def _trouble(self, at: float) -> list[Event]:
        rng = self._rng
        kind = rng.choice(TROUBLES)
        if kind == "kills" and rng.random() < 0.2:  # once more, during the start
            first = (("how", "now"), ("after", 0), ("power", False), ("down", 0.0))
            again = (
                ("how", "disk"),
                ("after", rng.randint(1, 400)),
                ("power", True),
                ("down", 0.0),
            )
            return [Event(at, kind, first), Event(at + 0.0001, kind, again)]
        draws: dict[str, Callable[[], tuple[tuple[str, Any], ...]]] = {
            "kills": self._kill,
            "stops": lambda: (("down", rng.uniform(0.1, 8.0)),),
            "spoils": lambda: (("fault", rng.choice(FAULTS).name), ("skip", rng.randrange(3))),
            "irritates": lambda: (("mood", rng.choice(list(Mood)).name),),
            "ails": lambda: (("what", rng.choice(ILLS)), ("seconds", rng.uniform(0.5, 9.0))),
            "turns_clock": lambda: (("hours", rng.choice((-5.0, -1.0, -0.01, 0.01, 1.0, 7.0))),),
            "cuts": tuple,
            "repeats": lambda: (("frames", rng.randint(1, 4)),),
            "restarts_signal": lambda: (("seconds", rng.uniform(0.05, 6.0)),),
        }
        return [Event(at, kind, draws[kind]())]

    def _kill(self) -> tuple[tuple[str, Any], ...]:
        rng = self._rng
        how = rng.choice(("now", "now", "step", "disk"))
        return (
            ("how", how),
            ("after", {"now": 0, "step": rng.randint(1, 400), "disk": rng.randint(1, 60)}[how]),
            ("power", rng.random() < 0.4),
            ("down", rng.choice((0.0, 0.05, 2.0, 8.0)) * rng.random()),
        )

    def _mark(self) -> str:
        self._marks += 1
        return f"mk{self._marks:03}z"
