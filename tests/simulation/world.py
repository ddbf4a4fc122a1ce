"""A world: people with phones, Signal, a model, and a machine on which the bot lives and dies."""

import asyncio
import math
import re
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from bot.config.loading import load_settings
from bot.config.settings import Settings
from conversation_store.models import ChatId
from tests.fakes.openai_server import OpenAiServer
from tests.fakes.signal_people import Group, SharedFile
from tests.simulation.disk import Disk
from tests.simulation.history import SECONDS, History
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import Exit, Machine
from tests.simulation.mind import Mind, Mood
from tests.simulation.phones import PLAN, QUESTION, Bubble, Phone, Receipts
from tests.simulation.rest_gateway import SimulatedRest
from tests.simulation.signal_network import (
    WAIT_SECONDS,
    Delivery,
    Doubt,
    Fault,
    SimulatedSignal,
    people,
)
from tools import catalog
from tools.base import Tool
from tools.schema import tool_from

Json = dict[str, Any]

MODEL_PORT: Final = 8_000
LOOK_SECONDS: Final = 5.0
QUIET_SECONDS: Final = 20.0
LONGEST_SECONDS: Final = 4_200.0
"""The world waits no longer for the bot to come to rest: more than an hour, the longest pause."""
LONG_SECONDS: Final = 700.0
MANY_EXITS: Final = 200
MANY_REQUESTS: Final = 1_000
"""A bot that ends so often, or asks the model so often, runs in a circle and comes to no rest."""
STOP_SECONDS: Final = 60.0
RESTART_SECONDS: Final = 1.0
MARK: Final = re.compile(r"mk\d{3}z")
NUMBERS: Final = ("1️⃣", "2️⃣")


@dataclass(eq=False)
class Said:
    """A message of a person, with its edits.

    Attributes:
        marks: of the message and its edits, in order; the last one counts.
        timestamps: in the same order.
        at: virtual seconds of the message.
        deletion: timestamp of the person's deletion, or 0.
    """

    who: int
    chat: ChatId
    work: str
    at: float
    marks: list[str]
    timestamps: list[int]
    times: list[float]
    timer: int = 0
    deletion: int = 0
    deleted_at: float | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a person."""

    who: int
    chat: ChatId
    text: str
    at: float
    timestamp: int


@dataclass(eq=False)
class Evidence:
    """All that the judge may know.

    Attributes:
        written: by the timestamp of a frame, lives and times in which a bot's connection got it.
        kills: life and time of each end of a process that was not in order.
        breaks: times at which a connection of signal-cli broke.
        ills: beginnings and ends of times in which the disk was ill.
        clock_turns: when the wall clock jumped.
        exits: unexpected ends of processes, with the cause.
        done: side effects that happened, by the number of the call, with times.
        answers: answers of people to questions before calls: call, whether it was a yes, frame.
        edits: the bot's edits: chat, timestamp.
        trace: what happened, in words.
        files: content of the store's files before and after the last stop.
    """

    said: list[Said] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    written: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    kills: list[tuple[int, float]] = field(default_factory=list)
    breaks: list[float] = field(default_factory=list)
    ills: list[list[float]] = field(default_factory=list)
    clock_turns: list[float] = field(default_factory=list)
    exits: list[tuple[int, float, str]] = field(default_factory=list)
    stops: list[tuple[int, float]] = field(default_factory=list)
    done: list[tuple[str, float]] = field(default_factory=list)
    answers: list[tuple[str, bool, int]] = field(default_factory=list)
    answer_frames: list[int] = field(default_factory=list)
    receipts: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    unheard: list[Doubt] = field(default_factory=list)
    quoted: set[str] = field(default_factory=set)
    ended: float = math.inf
    trace: list[str] = field(default_factory=list)
    files: list[bytes] = field(default_factory=list)


class World:
    """The whole world of one history."""

    def __init__(
        self, loop: SimulatedLoop, disk: Disk, plan: History, folder: Path, log: list[str]
    ) -> None:
        self.loop, self.disk, self.plan, self.folder, self.log = loop, disk, plan, folder, log
        self.evidence = Evidence()
        self._rng = Random(f"world {plan.seed}")
        self.persons = people(plan.people)
        self.phones = [
            Phone(person, Random(f"phone {plan.seed} {number}"), offset=self._rng.uniform(-30, 30))
            for number, person in enumerate(self.persons)
        ]
        self.groups = [f"{'ABCD'[index] * 43}=" for index in range(plan.groups)]
        self.signal: SimulatedSignal | SimulatedRest
        if plan.over_rest:
            self.signal = SimulatedRest(loop, self._rng, self._carry)
        else:
            self.signal = SimulatedSignal(loop, folder / "signal.sock", self._rng, self._carry)
        self.signal.written = self._note_written
        self.signal.faults = self._next_fault
        self.signal.twice = self._comes_twice
        self._repeated = 0
        self.mind = Mind(loop.time, loop.wall)
        self.model = OpenAiServer(handler=self.mind, port=MODEL_PORT)
        self.machine = Machine(loop, disk, self._settings, self._ended)
        self._faults: list[list[Any]] = []
        self._failing: tuple[float, list[Fault]] = (0.0, [])
        self._strikes: dict[str, Callable[[], None]] = {}
        self._sends_left = 0
        self._kills_done = 0
        self._busy = False
        self._missed_at = -1.0
        self._signal_restarts = False
        self._is_over = False
        self._tasks: asyncio.TaskGroup | None = None
        self._last_activity = 0.0
        self._answered: set[int] = set()
        catalog.CATALOG = self._tools()  # type: ignore[misc]

    # The beginning and the end

    async def run(self) -> None:
        """Play the history to its end."""
        for number, group in enumerate(self.groups):
            members = self.persons[: max(1, len(self.persons) - number)]
            self.signal.groups[group] = Group(members={one.aci: one for one in members})
        async with asyncio.TaskGroup() as self._tasks:
            await self._tasks.create_task(self.signal.come_back())
            await self._tasks.create_task(self.model.start())
            self.machine.start()
            for event in self.plan.events:
                self._later(event.at, self._play, event.kind, dict(event.what), str(event))
            await asyncio.sleep(SECONDS)
            await self._come_to_rest()
            self.evidence.files = [self._files()]
            await self._end()
            self.evidence.files.append(self._files())
            await self.signal.go_away()
            await self.model.stop()
        self._tasks = None

    async def _come_to_rest(self) -> None:
        """End all troubles, and wait until nothing happens any more."""
        self._is_over = True
        self._faults.clear()
        self._strikes.clear()
        self.mind.moods.clear()
        self.disk.full, self.disk.refuses, self.machine.sync_seconds = False, "", 0.0
        self.disk._changes_left = None
        self.loop.at_step = None
        async with asyncio.timeout(LONGEST_SECONDS):
            while self._busy or not self.machine.is_up:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.5)
        self.note("quiet")
        began = self.loop.time()
        least = LONG_SECONDS if self.plan.long else QUIET_SECONDS
        self._last_activity = max(self._last_activity, began)
        while self.loop.time() - began < LONGEST_SECONDS and not self._runs_in_a_circle():
            await asyncio.sleep(LOOK_SECONDS)
            quiet = self.loop.time() - self._last_activity
            if quiet >= QUIET_SECONDS and self.loop.time() - began >= least and self.is_settled():
                return

    def _runs_in_a_circle(self) -> bool:
        exits, requests = len(self.evidence.exits), len(self.mind.asked)
        return exits > MANY_EXITS or requests > MANY_REQUESTS

    def _files(self) -> bytes:
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return b"".join(path.read_bytes() for path in paths)

    def is_settled(self) -> bool:
        """Whether no rule is broken that the bot may still mend."""
        from tests.simulation.judge import pending

        return not pending(self)

    async def _end(self) -> None:
        self.note("stop")
        self.evidence.ended = self.loop.time()
        self.machine.tell_to_stop()
        async with asyncio.timeout(STOP_SECONDS):
            while self.machine.is_up:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.1)

    @property
    def has_moods(self) -> bool:
        """Whether the model ever fails."""
        return any(event.kind == "irritates" for event in self.plan.events)

    def note(self, words: str) -> None:
        """Add a line to the trace."""
        self.evidence.trace.append(f"{self.loop.time():9.3f}  {words}")

    def _later(self, at: float, act: Callable[..., None], *arguments: Any) -> None:
        self.loop.call_at(at, act, *arguments)

    def _do(self, coroutine: Any) -> None:
        assert self._tasks is not None
        self._tasks.create_task(coroutine)

    def _play(self, kind: str, what: dict[str, Any], words: str) -> None:
        self.evidence.trace.append(f"{self.loop.time():9.3f}> {words[9:]}")
        self._do(getattr(self, f"_{kind}")(**what))

    # The bot

    def _settings(self) -> Settings:
        sections: dict[str, dict[str, object]] = {
            "signal": {
                "url": self.signal.url,
                "phone_number": self.signal.account.number,
            },
            "llm": {
                "base_url": f"http://127.0.0.1:{MODEL_PORT}/v1",
                "model": "fake",
                "max_concurrency": 100,
            },
            "store": {"path": self.folder / "data" / "store.db"},
            "access": {"policy": "open", "messages_per_minute": 1_000, "groups": "always"},
            "attestation": {"dstack_socket": self.folder / "none.sock", "model_policy": "off"},
            "health": {"listen": ""},
            "tools": {"disabled": "web_search,web_fetch,get_weather,date_time"},
            "bot": {"summaries": False},
        }
        return load_settings(sections)

    def _tools(self) -> dict[str, Tool]:
        async def notes_write(text: str) -> str:
            """Write a note."""
            await asyncio.sleep(self._rng.uniform(0.0, 0.3))
            self.evidence.done.append((text, self.loop.time()))
            self.note(f"side effect {text}")
            if "effect" in self._strikes:
                self._strikes.pop("effect")()
            await asyncio.sleep(self._rng.uniform(0.0, 0.3))
            return "Written."

        async def calculate(expression: str) -> str:
            """Calculate."""
            await asyncio.sleep(0.05)
            return "5461"

        write = tool_from(notes_write, side_effects=True, question="Write a note?")
        return {"notes_write": write, "calculate": tool_from(calculate)}

    def _ended(self, life: int, error: Exit) -> None:
        if self.disk.is_dead or self._missed_at == self.loop.time():  # it noticed its dead disk
            self.evidence.kills.append((life, self.loop.time()))
            if self.disk.is_dead:
                self.disk.crash(self._rng, power=True)
            error = None
        cause = "" if error is None else _named(error)
        self.note(f"process {life} ended: {cause or 'in order'}")
        self.evidence.stops.append((life, self.loop.time()))
        if cause:
            self.evidence.exits.append((life, self.loop.time(), cause))
        if not self._busy and not self._is_ending:
            self._busy = True
            self._do(self._start_again(RESTART_SECONDS))

    @property
    def _is_ending(self) -> bool:
        return bool(self.evidence.trace and any(t.endswith("  stop") for t in self.evidence.trace))

    async def _start_again(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.note("start")
        self._busy = False
        self.machine.start()

    async def _kills(self, how: str, after: int, power: bool, down: float) -> None:
        if how == "now":
            self._strike(power, down)
        elif how == "step":
            self.loop.at_step = (self.loop.steps + after, lambda: self._strike(power, down))
        else:
            # The disk dies inside a call of the bot, whose context names the bot as the owner.
            outside, wait = copy_context(), self._rng.choice((0.0, 0.003, 0.03, 0.2))
            wait = 0.0 if how == "disk" else wait

            def strike() -> None:
                self.loop.call_later(wait, self._strike, power, down, context=outside)

            if how == "disk":
                self.disk.die_after(after, strike)
            else:
                self._strikes[how], self._sends_left = strike, after

    def _strike(self, power: bool, down: float) -> None:
        if not self.machine.is_up:
            if self.disk.is_dead:
                self._missed_at = self.loop.time()
                self.disk.crash(self._rng, power=power)
            return
        self._busy, self._kills_done = True, self._kills_done + 1
        self.evidence.kills.append((self.machine.life, self.loop.time()))
        self.note(f"killed{' by a power cut' if power else ''}")
        self.machine.strike()
        self._do(self._bury(power, down))

    async def _bury(self, power: bool, down: float) -> None:
        await self.machine.bury(self._rng, power=power)
        await self._start_again(down)

    async def _stops(self, down: float) -> None:
        if self._busy or not self.machine.is_up:
            return
        self._busy, kills = True, self._kills_done
        self.machine.tell_to_stop()
        await self.machine.has_ended()
        if self._kills_done == kills:  # otherwise it starts after the kill
            await self._start_again(down)

    async def _ails(self, what: str, seconds: float) -> None:
        ill = [self.loop.time(), self.loop.time() + seconds]
        self.evidence.ills.append(ill)
        if what == "slow":
            self.machine.sync_seconds = 0.3
        elif what == "full":
            self.disk.full = True
        else:
            self.disk.refuses = what  # type: ignore[assignment]
        await asyncio.sleep(seconds)
        self.disk.full, self.disk.refuses, self.machine.sync_seconds = False, "", 0.0

    async def _turns_clock(self, hours: float) -> None:
        self.evidence.clock_turns.append(self.loop.time())
        self.loop.wall_offset += hours * 3_600

    # Signal and the model

    async def _spoils(self, fault: str, skip: int) -> None:
        self._faults.append([skip, Fault[fault]])

    async def _fails(self, seconds: float, loses: bool = False) -> None:
        """Let each send end in a doubt for a while; some of them arrive."""
        faults = [Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.LOST_REPLY, Fault.ERROR_AFTER]
        faults = [Fault.LOST_REPLY] if loses else faults
        self._failing = (self.loop.time() + seconds, faults)

    def _next_fault(self) -> Fault:
        self._last_activity = self.loop.time()
        until, faults = self._failing
        if self.loop.time() < until:
            fault = self._rng.choice(faults)
            self.note(f"a send {fault}")
            return fault
        if not self._faults:
            return Fault.NONE
        if self._faults[0][0] > 0:
            self._faults[0][0] -= 1
            return Fault.NONE
        fault = self._faults.pop(0)[1]
        if fault is Fault.HANG_UP and not self.plan.over_rest:
            self.loop.call_later(0.0, self._note_breaks)
        self.note(f"a send {fault}")
        return fault

    def _note_breaks(self) -> None:
        self.evidence.breaks += [self.loop.time() + tenth / 10 for tenth in range(3)]

    async def _restarts_signal(self, seconds: float) -> None:
        if not self._signal_restarts:
            self._signal_restarts = True
            self.evidence.breaks.append(self.loop.time())
            await self.signal.restart(seconds)
            self._signal_restarts = False

    async def _cuts(self) -> None:
        self._note_breaks()
        self.loop.network.cut("signal-cli")

    async def _repeats(self, frames: int) -> None:
        self._repeated += frames

    def _comes_twice(self) -> bool:
        self._repeated -= self._repeated > 0
        return self._repeated > 0

    async def _irritates(self, mood: str) -> None:
        self.mind.moods.append(Mood[mood])

    def _note_written(self, frame: Json) -> None:
        timestamp = frame["envelope"]["timestamp"]
        place = (self.machine.life, self.loop.time())
        self.evidence.written.setdefault(timestamp, []).append(place)
        self._last_activity = self.loop.time()

    def _carry(self, delivery: Delivery) -> None:
        """Hand a delivery to the phones of a chat, each after its own delay."""
        self._last_activity = self.loop.time()
        self.loop.call_later(1.0, self._note_unheard, self.machine.life, delivery)
        self.note(
            f"{delivery.kind} {delivery.timestamp % 10**7} {delivery.target % 10**7 or ''} to"
            f" {self.name_of(delivery.chat)}: {delivery.text[:60]!r}"
        )
        if "send" in self._strikes and delivery.kind == "message":
            self._sends_left -= 1
            if self._sends_left <= 0:
                self._strikes.pop("send")()
        for phone in self.phones:
            if not self._is_in(phone, delivery.chat):
                continue
            at = max(phone.free_at, self.loop.time() + phone.delay())
            phone.free_at = at
            self.loop.call_at(at, self._arrives, phone, delivery)

    def _note_unheard(self, life: int, delivery: Delivery) -> None:
        """Note a delivery whose reply the bot may not have got, because it was killed."""
        if life != self.machine.life or not self.machine.is_up:
            at, until = delivery.timestamp, int((self.loop.wall() + WAIT_SECONDS) * 1_000)
            self.evidence.unheard.append(Doubt(delivery.chat, at, until, at))

    def _is_in(self, phone: Phone, chat: ChatId) -> bool:
        if chat.is_group:
            return phone.person.aci in self.signal.groups[chat.value].members
        return phone.person.aci == chat.value

    def name_of(self, chat: ChatId) -> str:
        """Return a short name of a chat."""
        if chat.is_group:
            return f"group {self.groups.index(chat.value)}"
        return next(p.name or "" for p in self.persons if p.aci == chat.value)

    def _arrives(self, phone: Phone, delivery: Delivery) -> None:
        bubble = phone.take(delivery, self.loop.time())
        match phone.receipts:
            case Receipts.PROMPT:
                waits = [phone.rng.uniform(0.01, 1.0)]
            case Receipts.LATE:
                waits = [30.0]
            case Receipts.TWICE:
                waits = [0.2, phone.rng.uniform(0.3, 2.0)]
            case _:
                waits = []
        for seconds in waits:
            self.loop.call_later(seconds, self._confirms_one, phone, delivery.timestamp)
        is_question = delivery.text.startswith(QUESTION) or PLAN in delivery.text
        if bubble is not None and (is_question or bubble.options):
            self._consider(phone, delivery.chat, bubble)

    def _confirms_one(self, phone: Phone, timestamp: int) -> None:
        if self._tasks is not None:  # otherwise the history is over
            self._do(self._receipt(phone, timestamp))

    async def _receipt(self, phone: Phone, timestamp: int) -> None:
        self.signal.take_clock(phone.offset)
        frame = self.signal._people_last + 1
        number = self.phones.index(phone)
        now = int((self.loop.epoch + self.loop.time() + phone.offset) * 1_000)
        self.evidence.receipts.setdefault(timestamp, []).append((number, max(now, frame)))
        await self.signal.deliver_receipt(timestamp, phone.person)

    # People

    def chat_of(self, who: int, group: int | None) -> ChatId:
        """Return the chat of a person with the bot, or a group."""
        if group is None:
            return ChatId.direct(self.persons[who].aci)
        return ChatId.group(self.groups[group])

    async def _says(
        self,
        *,
        who: int,
        group: int | None,
        mark: str,
        work: str,
        timer: int = 0,
        file: bool = False,
        length: int = 0,
    ) -> None:
        if group is not None and not self._is_in(self.phones[who], self.chat_of(who, group)):
            group = None
        files = [SharedFile("text/plain", f"file {mark[::-1]}".encode(), "a.txt")] if file else []
        said = Said(
            who, self.chat_of(who, group), work, self.loop.time(), [mark], [], [self.loop.time()],
            timer,
        )  # fmt: skip
        self.evidence.said.append(said)
        self.signal.take_clock(self.phones[who].offset)
        said.timestamps.append(self._next_timestamp(who))
        await self.signal.say(
            f"#{mark}# {work} please {' and again' * (length // 10)}".rstrip(),
            author=self.persons[who],
            group=None if group is None else self.groups[group],
            mention=group is not None,
            expires_seconds=timer,
            files=files,
        )

    def _next_timestamp(self, who: int) -> int:
        """Return the timestamp that the person's next action will have."""
        now = int((self.loop.epoch + self.loop.time() + self.phones[who].offset) * 1_000)
        return max(now, self.signal._people_last + 1)

    def _picked(self, who: int, group: int | None, pick: int) -> Said | None:
        chat = self.chat_of(who, group)
        mine = [
            one
            for one in self.evidence.said
            if one.who == who and one.chat == chat and not one.deletion
        ]
        return mine[-1 - pick] if pick < len(mine) else None

    async def _edits(self, who: int, group: int | None, pick: int, mark: str) -> None:
        said = self._picked(who, group, pick)
        if said is None:
            return
        self.signal.take_clock(self.phones[who].offset)
        target = said.timestamps[-1]
        said.marks.append(mark)
        said.times.append(self.loop.time())
        said.timestamps.append(self._next_timestamp(who))
        await self.signal.edit(
            f"#{mark}# {said.work} please",
            target,
            author=self.persons[who],
            group=said.chat.value if said.chat.is_group else None,
            mention=said.chat.is_group,
            expires_seconds=said.timer,
        )

    async def _deletes(self, who: int, group: int | None, pick: int) -> None:
        said = self._picked(who, group, pick)
        if said is None:
            return
        self.signal.take_clock(self.phones[who].offset)
        said.deletion, said.deleted_at = self._next_timestamp(who), self.loop.time()
        await self.signal.delete(
            said.timestamps[0],
            author=self.persons[who],
            group=said.chat.value if said.chat.is_group else None,
        )

    async def _commands(self, who: int, group: int | None, text: str) -> None:
        if group is not None and not self._is_in(self.phones[who], self.chat_of(who, group)):
            group = None
        self.signal.take_clock(self.phones[who].offset)
        timestamp, chat = self._next_timestamp(who), self.chat_of(who, group)
        self.evidence.commands.append(Command(who, chat, text, self.loop.time(), timestamp))
        await self.signal.say(
            text,
            author=self.persons[who],
            group=None if group is None else self.groups[group],
            mention=group is not None,
        )

    async def _confirms(self, who: int, how: str) -> None:
        self.phones[who].receipts = Receipts[how]

    async def _reacts(self, who: int, group: int | None, emoji: str) -> None:
        chat = self.chat_of(who, group)
        shown = self.phones[who].shown(chat)
        if shown and "👍" not in shown[-1].text:  # otherwise it would be an answer
            self.signal.take_clock(self.phones[who].offset)
            await self.signal.react(
                emoji,
                shown[-1].last,
                author=self.persons[who],
                group=chat.value if chat.is_group else None,
            )

    # Answers to questions

    def _consider(self, phone: Phone, chat: ChatId, bubble: Bubble) -> None:
        """Let the asked person answer a question after a while."""
        said = next(
            (one for one in self.evidence.said if any(_names(bubble.text, m) for m in one.marks)),
            None,
        )
        who = self.phones.index(phone)
        if said is None or said.who != who or bubble.root in self._answered:
            return
        self._answered.add(bubble.root)
        rng = Random(f"answer {self.plan.seed} {said.marks[0]} {len(self._answered)}")
        seconds = rng.choice((0.1, 1.0, 5.0)) * rng.uniform(0.5, 1.0)
        self.loop.call_later(seconds, lambda: self._do(self._answer(who, chat, bubble, rng)))

    async def _answer(self, who: int, chat: ChatId, bubble: Bubble, rng: Random) -> None:
        if not bubble.is_shown:
            return
        person, group = self.persons[who], chat.value if chat.is_group else None
        is_call, is_yes_or_no = "Write a note?" in bubble.text, "👍" in bubble.text
        yes = rng.random() < 0.7
        call = next(
            (w for w in bubble.text.replace('"', " ").split() if ":" in w and w[0] == "m"), ""
        )
        self.signal.take_clock(self.phones[who].offset)
        self.evidence.answer_frames.append(self._next_timestamp(who))
        if is_call:
            self.evidence.answers.append((call, yes, self._next_timestamp(who)))
        self.note(f"{person.name} answers {'yes' if yes else 'no'} {call}")
        if bubble.options:
            await self.signal.vote([0], bubble.root, author=person, group=group)
        elif is_yes_or_no:
            if rng.random() < 0.5 or bubble.root in self.signal.unanswered:
                emoji = "👍" if yes else "👎"
                await self.signal.react(emoji, bubble.last, author=person, group=group)
            else:
                words = "yes" if yes else "no"
                quote = bubble.last
                self.evidence.quoted |= set(MARK.findall(bubble.text))
                await self.signal.say(words, author=person, group=group, quote=quote)
        elif rng.random() < 0.5 or bubble.root in self.signal.unanswered:
            await self.signal.react(rng.choice(NUMBERS), bubble.last, author=person, group=group)
        else:
            self.evidence.quoted |= set(MARK.findall(bubble.text))
            await self.signal.say("2", author=person, group=group, quote=bubble.last)


def _names(text: str, mark: str) -> bool:
    words = text.replace("?", " ").replace(":", " ").replace(",", " ").replace('"', " ").split()
    return mark in words


def _named(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return _named(error.exceptions[0])
    return f"{type(error).__name__}: {error}"
