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
WAITS: Final = ("write", "ask", "plan")
"""Work that waits for a person's answer."""
STORED: Final = ("plain", "remember", "remind", "write", "schedule", "long", "todo")
"""Work that leaves something in the store."""
LONG_TEXT: Final = 2_500
Place = tuple[tuple[str, Any], ...]
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
    is_deaf = rng.random() < 0.01
    events = sorted(draw.in_the_dark() if is_deaf else draw.events(), key=lambda event: event.at)
    is_long = is_deaf or rng.random() < 0.05
    return History(seed, people, groups, over_rest, is_long, tuple(events))


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
        for _ in range(rng.choice((0, 0, 1, 2))):
            theme = rng.choice(
                (
                    self._burst_and_stop,
                    self._deletion_and_kill,
                    self._kill_at_send,
                    self._kill_at_effect,
                    self._outage,
                    self._stop_of_a_wait,
                )
            )
            events += theme(rng.uniform(0.5, SECONDS * 0.6))
        return events

    def in_the_dark(self) -> list[Event]:
        """Draw some messages; neither signal-cli nor any phone ever confirms what the bot sends."""
        never = [
            Event(0.1, "confirms", (("who", who), ("how", Receipts.NEVER.name)))
            for who in range(self._people)
        ]
        messages = [self._message(self._rng.uniform(0.5, 9.0), self._place()) for _ in range(2)]
        return [*never, Event(0.1, "fails", (("seconds", 1e6), ("loses", True))), *messages]

    # Troubles at the moments that matter; by chance alone, each would be rare.

    def _burst_and_stop(self, at: float) -> list[Event]:
        """Draw messages that come one after the other while the bot is told to stop."""
        rng = self._rng
        slow = Event(at, "ails", (("what", "slow"), ("seconds", rng.uniform(0.5, 3.0))))
        at += 0.1
        burst = [self._message(at + n / 1_000, self._place()) for n in range(rng.randint(2, 6))]
        stop = Event(at + rng.uniform(0.0, 0.06), "stops", (("down", rng.uniform(0.1, 3.0)),))
        return [slow, *burst, stop]

    def _deletion_and_kill(self, at: float) -> list[Event]:
        """Draw a deletion or an edit and a kill before the bot has carried it out."""
        rng, place = self._rng, self._place()
        message = self._message(at, place, rng.choice(STORED))
        at += rng.choice((0.2, 6.0)) * rng.uniform(0.1, 1.0)
        change = Event(at, "deletes", (*place, ("pick", 0)))
        if rng.random() < 0.3:
            change = Event(at, "edits", (*place, ("pick", 0), ("mark", self._mark())))
        kill = Event(at + 0.0001, "kills", self._kill_at("disk", rng.randint(1, 25)))
        return [message, change, self._message(at + rng.uniform(0.0, 0.003), place), kill]

    def _kill_at_send(self, at: float) -> list[Event]:
        """Draw a kill right after one of the bot's messages has left."""
        rng, place = self._rng, self._place()
        work = rng.choice(("long", "write", "ask", "remind", "plain", "plan", "schedule"))
        kill = self._kill_at("send", rng.randint(1, 4))
        return [self._message(at, place, work), Event(at + 0.01, "kills", kill)]

    def _kill_at_effect(self, at: float) -> list[Event]:
        """Draw a kill while a call takes effect."""
        kill = self._kill_at("effect", 1)
        return [self._message(at, self._place(), "write"), Event(at + 0.01, "kills", kill)]

    def _outage(self, at: float) -> list[Event]:
        """Draw messages of several chats whose answers are all in doubt, with slow receipts."""
        rng = self._rng
        places = [self._place() for _ in range(rng.randint(1, 4))]
        slow = [
            Event(at, "confirms", (("who", who), ("how", Receipts.LATE.name)))
            for who in range(self._people)
            if rng.random() < 0.4
        ]
        messages = [self._message(at + rng.uniform(0.0, 0.3), place) for place in places]
        outage = Event(at, "fails", (("seconds", rng.choice((1.0, 4.0, 20.0))),))
        return [outage, *slow, *messages]

    def _stop_of_a_wait(self, at: float) -> list[Event]:
        """Draw a `!stop` while a turn waits for an answer."""
        place = self._place()
        message = self._message(at, place, self._rng.choice(WAITS))
        at += self._rng.uniform(0.3, 4.0)
        return [message, Event(at, "commands", (*place, ("text", "!stop")))]

    def _place(self) -> Place:
        rng = self._rng
        group = rng.randrange(self._groups) if self._groups and rng.random() < 0.4 else None
        return (("who", rng.randrange(self._people)), ("group", group))

    def _message(self, at: float, place: Place, work: str = "plain") -> Event:
        return Event(at, "says", (*place, ("mark", self._mark()), ("work", work)))

    def _of_people(self, at: float) -> list[Event]:
        rng = self._rng
        place = self._place()
        who = place[0][1]
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

    def _conversation(self, at: float, place: Place) -> list[Event]:
        rng = self._rng
        events = []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            kind = rng.choice(KINDS) if rng.random() < 0.6 else "plain"
            what: Place = (*place, ("mark", self._mark()), ("work", kind))
            if rng.random() < 0.08:
                what = (*what, ("timer", rng.choice((5, 30))))
            if rng.random() < 0.05:
                what = (*what, ("file", True))
            if rng.random() < 0.08:
                what = (*what, ("length", rng.randint(300, LONG_TEXT)))
            events.append(Event(at, "says", what))
            at += rng.choice((0.01, 0.1, 0.5, 3.0)) * rng.random()
        if rng.random() < 0.3:  # soon after it
            at += rng.choice((0.05, 0.5, 4.0)) * rng.random()
            events += self._second_thought(at, place)
        return events

    def _second_thought(self, at: float, place: Place) -> list[Event]:
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
            again = (("how", "disk"), ("after", rng.randint(1, 400)), *first[2:])
            return [Event(at, kind, first), Event(at + 0.0001, kind, again)]
        draws: dict[str, Callable[[], Place]] = {
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

    def _kill(self) -> Place:
        rng = self._rng
        how = rng.choice(("now", "now", "step", "disk"))
        most = {"now": 0, "step": 400, "disk": 60}[how]
        return self._kill_at(how, rng.randint(1, most) if most else 0)

    def _kill_at(self, how: str, after: int) -> Place:
        rng = self._rng
        return (
            ("how", how),
            ("after", after),
            ("power", rng.random() < 0.4),
            ("down", rng.choice((0.0, 0.05, 2.0, 8.0)) * rng.random()),
        )

    def _mark(self) -> str:
        self._marks += 1
        return f"mk{self._marks:03}z"
