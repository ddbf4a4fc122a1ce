"""Any error of a send may follow its delivery: a receipt settles it, and phones show one copy."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final

import pytest
from structlog.testing import capture_logs

from bot.chat import outbox
from bot.chat.outbox import MAX_COPIES
from bot.commands.questions import UNDONE
from bot.config.settings import Settings
from bot.signal import receipts
from bot.signal.events import Person
from conversation_store.models import ChatId
from tests.e2e.daemon_process import HASTY, daemon, environment
from tests.e2e.running_bot import World, killed_bot, running_bot, world
from tests.e2e.test_conversation import BEN, CALCULATE
from tests.e2e.test_questions import ask
from tests.e2e.test_reactions import react
from tests.e2e.test_tables import WIDE
from tests.e2e.test_voice import AAC, VOICE
from tests.e2e.traces import there, there_is
from tests.fakes.json_rpc_server import Refusal, RefusedAfterDelivery
from tests.fakes.openai_server import script, speech, text, tool_calls
from tests.fakes.signal_cli import SignalCli, TcpSignalCli
from tests.fakes.signal_people import Group
from tests.fakes.signal_rest_api import Answer, SignalRestApi
from tests.fakes.signal_side import ADA, Act, Sent

TEAM: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
PRIVATE: Final = ChatId.direct(ADA.aci)
GROUP: Final = ChatId.group(TEAM)


@dataclass(frozen=True)
class Failure:
    """Error of signal-cli's daemon; with `fates` it names the timestamp."""

    code: int
    message: str
    fates: tuple[str, ...] = ()

    def refusal(self, timestamp: int, *, delivers: bool) -> Refusal:
        results = [{"type": fate, "recipientAddress": {}} for fate in self.fates]
        data = {"response": {"timestamp": timestamp, "results": results}} if results else None
        return (RefusedAfterDelivery if delivers else Refusal)(self.code, self.message, data)


UNPROCESSABLE: Final = Failure(
    -32603, "[422] Bad response: 422 (NonSuccessfulResponseCodeException)"
)
OVER_DAEMON: Final = {
    "422": UNPROCESSABLE,
    "IOException": Failure(-32603, "Failed to send message: null (IOException)"),
    "SQLite": Failure(-32603, "[SQLITE_BUSY] The database file is locked (database is locked)"),
    "network": Failure(-1, "Failed to send message", ("NETWORK_FAILURE",)),
    "unknown text": Failure(-1, "Something went wrong"),
    "-3": Failure(-3, "Failed to send message: Closed unexpectedly"),
    "-5": Failure(-5, "Failed to send message due to rate limiting"),
    "-7": Failure(-7, "A code of the future"),
}
REFUSED: Final = Answer(400, '{"error":"Failed to send message: null (IOException)"}')
OVER_REST: Final = {
    "REST 400": REFUSED,
    "REST 400, reset": Answer(400, '{"error":"read tcp: connection reset by peer"}'),
    "REST 400, SQLite": Answer(400, '{"error":"[SQLITE_BUSY] database is locked"}'),
    "REST 400, empty": Answer(400),
    **{f"REST {status}": Answer(status) for status in (429, 500, 502, 503, 504, 520)},
}
FAILURES: Final = OVER_DAEMON | OVER_REST
NO_NETWORK: Final = (
    '{"error":"Failed to get linked devices: java.net.UnknownHostException: chat.signal.org"}'
)
TYPICAL: Final = pytest.mark.parametrize("failure", ["422", "REST 400"])


@dataclass(eq=False)
class Stage:
    """A Signal side whose sends fail, and its people.

    Attributes:
        here: world of the bot, with its model.
        people: the Signal side.
        failure: the error.
        sends, acts: so many of the next sends, reactions, deletions and ends of polls fail.
        delivers: they are carried out all the same.
        tried_at: when the bot tried the failing ones.
    """

    here: World
    people: SignalCli | SignalRestApi
    failure: Failure | Answer
    sends: float = 0
    acts: float = 0
    delivers: bool = True
    tried_at: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.people.has_polls = True
        self.people.groups[TEAM] = Group(members={ADA.aci: ADA, BEN.aci: BEN})
        if isinstance(self.people, SignalRestApi):
            self.people.answer_send = lambda _: self._answer(is_act=False)
            self.people.answer_act = lambda _: self._answer(is_act=True)
        else:
            self.people.on_send = self._take
            self.people.on_act = self._take

    def _is_to_fail(self, *, is_act: bool) -> bool:
        left = self.acts if is_act else self.sends
        self.acts -= is_act
        self.sends -= not is_act
        if left > 0:
            self.tried_at.append(time.monotonic())
        return left > 0

    def _answer(self, *, is_act: bool) -> Answer | None:
        if not self._is_to_fail(is_act=is_act):
            return None
        assert isinstance(self.failure, Answer)
        return Answer(self.failure.status, self.failure.body, after_delivery=self.delivers)

    async def _take(self, what: Sent | Act) -> None:
        if self._is_to_fail(is_act=isinstance(what, Act)):
            assert isinstance(self.failure, Failure)
            await self.people._announce()
            raise self.failure.refusal(what.timestamp, delivers=self.delivers)

    async def ready(self) -> None:
        if isinstance(self.people, SignalRestApi):
            await self.people.wait_for_receiver()

    def shown(self, chat: ChatId = PRIVATE) -> list[str]:
        """Return the last word of each message that phones show in a chat."""
        return [text.split()[-1] for text in shown(self.people, chat)]

    async def until_shown(self, *words: str, chat: ChatId = PRIVATE) -> None:
        try:
            await self.people.until(lambda: self.shown(chat) == [*words])
        except TimeoutError:
            raise AssertionError(f"{self.shown(chat)} instead of {words}") from None

    async def tried(self, times: int) -> None:
        """Wait until so many sends have failed, whether they arrived or not."""
        await self.people.until(lambda: len(self.tried_at) >= times)

    def reach_signal(self, reaches: bool) -> None:
        """Begin or end an outage between signal-cli and Signal, as far as questions show it."""
        if isinstance(self.people, SignalRestApi):
            self.people.no_devices = NO_NETWORK
            self.people.devices = [{"id": 1, "name": ""}] if reaches else None
        else:
            self.people.lists_devices = reaches

    def looks(self) -> int:
        """Return how often the bot asked Signal for the account's devices."""
        return sum("devices" in one.lower() for one in self.people.asked)


def shown(people: SignalCli | SignalRestApi, chat: ChatId) -> list[str]:
    """Return the messages in a chat, with their edits and without the deleted ones.

    Phones ignore the edit of a version that has been replaced.
    """
    first_of: dict[int, int] = {}
    latest: dict[int, tuple[int, str]] = {}
    for sent in people.sent:
        first = sent.timestamp if sent.replaces is None else first_of.get(sent.replaces)
        is_late = first in latest and latest[first][0] != sent.replaces
        if sent.chat != chat or first is None or is_late:
            continue
        first_of[sent.timestamp] = first
        latest[first] = sent.timestamp, sent.text
    gone = {first_of.get(timestamp) for where, timestamp in people.deleted if where == chat}
    return [text for first, (_, text) in latest.items() if first not in gone]


@asynccontextmanager
async def confirming(people: SignalCli | SignalRestApi) -> AsyncIterator[None]:
    """Let the phone of each recipient confirm everything that arrives."""

    async def confirm() -> None:
        confirmed: set[int] = set()

        def new() -> list[tuple[ChatId, int]]:
            arrived = [(one.chat, one.timestamp) for one in [*people.sent, *people.acts]]
            return [one for one in arrived if one[1] not in confirmed]

        while True:
            await people.until(lambda: bool(new()), seconds=3_600)
            for chat, timestamp in new():
                confirmed.add(timestamp)
                for person in members(chat):
                    await people.deliver_receipt(timestamp, person)

    def members(chat: ChatId) -> list[Person]:
        return [one for one in (ADA, BEN) if chat.is_group or chat.value == one.aci]

    phones = asyncio.create_task(confirm())
    try:
        yield
    finally:
        phones.cancel()
        await asyncio.wait({phones})


@asynccontextmanager
async def empty_stage(
    failure: str, **sections: Mapping[str, object]
) -> AsyncIterator[tuple[Stage, Settings]]:
    """Provide a Signal side, and the settings of a bot whose sends can fail with an error."""
    error = FAILURES[failure]
    side = SignalRestApi.listen() if isinstance(error, Answer) else None
    async with world() as here, side or SignalCli.listen(here.folder / "cli.sock") as people:
        signal = {"url": people.url, "phone_number": people.account.number}
        access = {"groups": "always"}
        yield Stage(here, people, error), here.settings(signal=signal, access=access, **sections)


@asynccontextmanager
async def stage(
    failure: str, *, confirms: bool = False, **sections: Mapping[str, object]
) -> AsyncIterator[Stage]:
    """Run a bot whose sends can fail with an error.

    Args:
        confirms: phones confirm everything.
    """
    async with empty_stage(failure, **sections) as (on, settings):
        phones = confirming(on.people) if confirms else nullcontext()
        async with phones, running_bot(settings):
            await on.ready()
            yield on


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only a short time for receipts; each pause is longer than a send can be late."""
    monkeypatch.setattr(outbox, "RECEIPT_SECONDS", 0.4)
    monkeypatch.setattr(receipts, "CLOCK_SKEW_MS", 50)
    monkeypatch.setattr(receipts, "LATE_START_MS", 100)
    monkeypatch.setattr(receipts, "AHEAD_MS", 100)
    for name in ("PAUSES", "LIMITED_PAUSES"):
        monkeypatch.setattr(outbox, name, (0.3, 0.9))


# Each kind of message, with a prompt receipt ------------------------------------------------------


@pytest.mark.parametrize("failure", FAILURES)
async def test_text_with_an_error_after_its_delivery_is_shown_once(failure: str) -> None:
    async with stage(failure, confirms=True) as on:
        on.sends = 1
        await on.people.say("one")
        await on.until_shown("one")
        await on.people.say("two", author=BEN)
        await on.people.say("three")
        await on.until_shown("two", chat=ChatId.direct(BEN.aci))
        await on.until_shown("one", "three")
    assert len(on.tried_at) == 1
    assert not on.people.deleted


ALL: Final = float("inf")
LONG: Final = "\n\n".join(f"{'word ' * 300} part{number}" for number in range(4))


async def text_in_group(on: Stage) -> None:
    on.sends = ALL
    await on.people.say("one", group=TEAM)
    await on.until_shown("one", chat=GROUP)
    await on.people.say("two", group=TEAM)
    await on.until_shown("one", "two", chat=GROUP)
    assert len(on.people.sent) == 2


async def long_answer(on: Stage) -> None:
    on.here.model.handler = script(text(LONG))
    on.sends = ALL
    await on.people.say("one")
    await on.people.until(lambda: "part3" in on.shown())
    await on.people.say("two")
    await on.people.until(lambda: "two" in on.shown())
    parts = [part for word in on.shown() for part in [word] if part.startswith("part")]
    assert parts == sorted(set(parts))
    assert len(on.people.sent) == len(parts) + 1


async def edited_answer(on: Stage) -> None:
    question = await on.people.say("one")
    await on.until_shown("one")
    on.sends = ALL
    await on.people.edit("two", question)
    await on.until_shown("two")
    await on.people.say("three")
    await on.until_shown("two", "three")
    assert len(on.people.sent) == 3


async def shortened_answer(on: Stage) -> None:
    on.here.model.handler = script(text(LONG), text("short"))
    question = await on.people.say("one")
    await on.people.until(lambda: "part3" in on.shown())
    parts = len(on.people.sent)
    on.sends = on.acts = ALL
    await on.people.edit("two", question)
    await on.until_shown("short")
    await on.people.say("three")
    await on.until_shown("short", "three")
    assert len(on.people.sent) == parts + 2
    assert len(on.people.deleted) == len(set(on.people.deleted)) == parts - 1


async def progress(on: Stage) -> None:
    on.here.model.handler = script(tool_calls(CALCULATE), text("It is 5461"))
    on.sends = ALL
    await on.people.say("one")
    await on.until_shown("✓", "5461")
    begun, *edits, _ = on.people.sent
    assert begun.replaces is None
    assert edits
    assert all(edit.replaces is not None for edit in edits)


async def poll(on: Stage) -> None:
    on.here.model.handler = script(ask(), text("Green"))
    on.sends = 1
    await on.people.say("paint it", group=TEAM)
    await on.until_shown("colour?", chat=GROUP)
    asked = on.people.sent[-1]
    assert asked.poll is not None
    await there(on.here, str(asked.timestamp))
    on.acts = 1
    await on.people.vote([1], asked.timestamp, group=TEAM)
    await on.until_shown("colour?", "Green", chat=GROUP)
    await on.people.until(lambda: bool(on.people.ended_polls))
    await on.people.say("two", group=TEAM)
    await on.until_shown("colour?", "Green", "two", chat=GROUP)
    assert on.people.ended_polls == [(GROUP, asked.timestamp)]
    assert len(on.people.sent) == 3


async def reaction(on: Stage) -> None:
    on.here.model.handler = script(react())
    on.acts = ALL
    thanks = await on.people.say("thanks")
    await on.people.until(lambda: bool(on.people.reactions))
    await on.people.say("two")
    await on.until_shown("two")
    assert [one.timestamp for one in on.people.reactions] == [thanks]


async def file(on: Stage) -> None:
    on.here.model.handler = script(text(WIDE))
    on.sends = ALL
    await on.people.say("the cities, please")
    await on.people.until(lambda: len(on.people.sent) == 1)
    await on.people.say("two")
    await on.people.until(lambda: on.shown()[-1] == "two")
    assert [len(one.attachments) for one in on.people.sent] == [1, 0]


async def voice_note(on: Stage) -> None:
    on.here.model.speech_handler = speech(AAC)
    await on.people.say("!voice on")
    await on.people.until(lambda: len(on.people.sent) == 1)
    on.sends = ALL
    for number, word in enumerate(("one", "two"), 2):
        await on.people.say(word)
        await on.people.until(lambda number=number: len(on.people.sent) >= number)  # type: ignore[misc]
    assert [one.attachments[0].data for one in on.people.sent[1:]] == [AAC, AAC]
    assert on.shown()[1:] == ["one", "two"]


async def undone_answer(on: Stage) -> None:
    await on.people.say("one")
    await on.until_shown("one")
    on.acts = ALL
    await on.people.say("!undo")
    await on.until_shown(UNDONE.split()[-1])
    await on.people.say("two")
    await on.until_shown(UNDONE.split()[-1], "two")
    assert len(on.people.deleted) == 1


KINDS: Final[tuple[Callable[[Stage], Awaitable[None]], ...]] = (
    text_in_group,
    long_answer,
    edited_answer,
    shortened_answer,
    progress,
    poll,
    reaction,
    file,
    voice_note,
    undone_answer,
)


@TYPICAL
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_every_kind_of_message_is_there_once(
    kind: Callable[[Stage], Awaitable[None]], failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.chat.polls.SETTLE_SECONDS", 0.05)
    async with stage(failure, llm=VOICE, confirms=True) as on:
        await kind(on)


# No receipt, and late ones ------------------------------------------------------------------------


@TYPICAL
@pytest.mark.parametrize("delivers", [True, False])
async def test_without_a_receipt_a_message_is_sent_three_times_at_most(
    failure: str, quick: None, *, delivers: bool
) -> None:
    async with stage(failure) as on:
        with capture_logs() as log:
            on.sends, on.delivers = MAX_COPIES, delivers
            await on.people.say("one")
            await on.tried(1)
            await on.people.say("two")
            await on.until_shown(*["one"] * MAX_COPIES * delivers, "two")
    first, second, third = on.tried_at
    assert second - first >= 0.3
    assert third - second >= 0.9
    said = [(line["event"], line["log_level"]) for line in log]
    assert said.count(("outbox.will_retry", "warning")) == 1
    assert said.count(("outbox.gave_up", "error")) == 1


ORDERS: Final = pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)])


@TYPICAL
@ORDERS
async def test_copies_that_a_phone_confirms_after_the_bot_gave_up_are_deleted(
    failure: str, order: tuple[int, ...], quick: None
) -> None:
    async with stage(failure) as on:
        on.sends = MAX_COPIES
        await on.people.say("one")
        await on.tried(1)
        await on.people.say("two")
        await on.until_shown("one", "one", "one", "two")
        timestamps = [one.timestamp for one in on.people.sent]
        for place in order:
            await on.people.deliver_receipt(timestamps[place])
        await on.until_shown("one", "two")
        await on.people.say("three")
        await on.until_shown("one", "two", "three")
    assert len(on.people.deleted) == 2


@TYPICAL
@ORDERS
async def test_copies_of_a_question_are_deleted_and_it_is_answered(
    failure: str, order: tuple[int, ...], quick: None
) -> None:
    async with stage(failure) as on:
        on.here.model.handler = script(ask(), text("Green"))
        on.sends = MAX_COPIES - 1
        await on.people.say("paint it")
        await on.people.until(lambda: len(on.people.sent) == MAX_COPIES)
        timestamps = [one.timestamp for one in on.people.sent]
        await there(on.here, str(timestamps[-1]))
        for place in order:
            await on.people.deliver_receipt(timestamps[place])
        await on.people.until(lambda: len(on.shown()) == 1)
        await on.people.say("2")
        await on.people.until(lambda: on.shown()[1:] == ["Green"])
    assert sorted(timestamp for _, timestamp in on.people.deleted) == timestamps[:-1]


@TYPICAL
async def test_progress_message_in_doubt_is_not_sent_again(
    failure: str, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.chat.progress.PROGRESS_SECONDS", 0.2)
    async with stage(failure) as on:
        on.here.model.handler = script(
            tool_calls(CALCULATE), tool_calls(CALCULATE), text("It is 5461")
        )
        on.sends = 1
        await on.people.say("one")
        await on.until_shown("calculate…", "5461")
        await on.people.say("two")
        await on.until_shown("calculate…", "5461", "two")
    assert len(on.people.sent) == 3


# Kills and outages --------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [SignalCli, TcpSignalCli])
@pytest.mark.parametrize("handled", ["after the restart", "after the second send"])
@pytest.mark.parametrize("fails", [False, True])
async def test_send_that_signal_cli_handles_after_a_restart_leaves_one_copy(
    side: type[SignalCli | TcpSignalCli], handled: str, *, fails: bool
) -> None:
    """With `fails`, an error follows the delivery of the first send that is answered."""
    async with world() as here, side.listen(here.folder / "late.sock") as signal:
        signal.finishes = True
        on = Stage(here, signal, UNPROCESSABLE, sends=fails)
        more = {"SIGNAL__URL": signal.url, "SIGNAL__PHONE_NUMBER": signal.account.number}
        settings = environment(here, **more)
        async with confirming(signal):
            async with daemon(settings, folder=here.folder, module=HASTY) as bot:
                signal.takes_sends.clear()
                await signal.say("one")
                await signal.until(lambda: signal.waiting_sends == 1)
                await bot.killed()
            sending, signal.takes_sends = signal.takes_sends, asyncio.Event()
            signal.takes_sends.set()
            async with daemon(settings, folder=here.folder, module=HASTY):
                await signal.until(lambda: signal.subscribed)
                if handled != "after the restart":
                    await signal.until(lambda: len(signal.sent) == 1)
                sending.set()
                await signal.until(lambda: len(signal.sent) > (handled != "after the restart"))
                await on.until_shown("one")
                await signal.say("two")
                await on.until_shown("one", "two")


@TYPICAL
async def test_restarts_use_up_no_copies_early(
    failure: str, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "PROOF_SECONDS", 0.05)
    async with empty_stage(failure) as (on, settings):
        on.sends, on.delivers = MAX_COPIES, False
        for tries in range(1, MAX_COPIES):
            async with killed_bot(settings):
                await on.ready()
                if tries == 1:
                    await on.people.say("one")
                await on.tried(tries)
                await there_is(on.here, f"SELECT 1 FROM outbox WHERE attempts = {tries}")
        async with running_bot(settings):
            await on.tried(MAX_COPIES)
    first, second, third = on.tried_at
    assert second - first >= 0.3
    assert third - second >= 0.9


@TYPICAL
async def test_outage_uses_up_no_copies(failure: str, quick: None) -> None:
    async with stage(failure, confirms=True) as on:
        on.reach_signal(False)
        on.sends, on.delivers = ALL, False
        await on.people.say("one")
        await on.tried(1)
        seen = on.looks()
        await on.people.until(lambda: on.looks() >= seen + 3)
        assert len(on.tried_at) == 1
        on.sends = 0
        on.reach_signal(True)
        await on.until_shown("one")
        await on.people.say("two")
        await on.until_shown("one", "two")
    assert len(on.people.sent) == 2
