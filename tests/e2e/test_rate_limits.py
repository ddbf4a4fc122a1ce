"""Signal delivers a message and answers with an error: the phone shows the message once."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import pytest

from bot.chat import outbox
from bot.signal.events import Person
from conversation_store.models import ChatId
from tests.e2e.daemon_process import HASTY, daemon, environment
from tests.e2e.running_bot import WAIT_SECONDS, World, running_bot, world
from tests.e2e.stored import copied
from tests.fakes.json_rpc_server import Refusal, RefusedAfterDelivery
from tests.fakes.signal_people import Group, SignalPeople
from tests.fakes.signal_rest_api import NUMBER, Answer, SignalRestApi
from tests.fakes.signal_side import ADA, Sent, SignalSide

BEN: Final = Person(aci="0d1e2f30-0000-4000-8000-000000000001", name="Ben")
TEAM: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
SOON_SECONDS: Final = 6.0
"""Sooner than the wait of another chat ends."""
LIMITS: Final = 2

TOLD: Final = "RATE_LIMIT_FAILURE with the timestamp"
IO: Final = "-32603 with 429"
PLAIN: Final = "HTTP 429 with an empty challenge"
HIDDEN: Final = "HTTP 400 with [429]"

LOST: Final = "NETWORK_FAILURE with the timestamp"
SERVER: Final = "HTTP 500"

OVER_DAEMON: Final = (TOLD, IO, LOST)
OVER_GATEWAY: Final = (PLAIN, HIDDEN, SERVER)
CODES: Final = {
    TOLD: (-5, ["RATE_LIMIT_FAILURE"]),
    LOST: (-1, ["NETWORK_FAILURE"]),
}
BODIES: Final = {
    SERVER: Answer(500),
    PLAIN: Answer(429, '{"error":"slow down","challenge_tokens":[""],"account":"+49"}'),
    HIDDEN: Answer(400, "Failed to send message: [429] Rate limited (RateLimitException)"),
}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent resends before the end of a test."""
    monkeypatch.setattr(outbox, "LIMITED_PAUSES", (600.0, 600.0))
    monkeypatch.setattr(outbox, "PAUSES", (300.0, 300.0))


@dataclass(eq=False)
class Stage:
    """A Signal side that limits the sends to one chat, and the bot's settings for it.

    Attributes:
        kind: of the error.
        here: world of the bot, with its model.
        side: the people.
        limited: the chat whose sends end in the error.
        delivers: whether the message goes out all the same.
        tried_at: when the bot tried to send to that chat.
    """

    kind: str
    here: World
    side: SignalSide | SignalRestApi
    limited: ChatId | None = None
    delivers: bool = True
    tried_at: list[float] = field(default_factory=list)

    @property
    def people(self) -> SignalPeople:
        return self.side

    @property
    def overrides(self) -> dict[str, dict[str, object]]:
        access: dict[str, object] = {"groups": "always"}
        if isinstance(self.side, SignalRestApi):
            return {"signal": {"url": self.side.url, "phone_number": NUMBER}, "access": access}
        return {"access": access}

    @property
    def environment(self) -> dict[str, str]:
        if isinstance(self.side, SignalRestApi):
            more = {"SIGNAL__URL": self.side.url, "SIGNAL__PHONE_NUMBER": NUMBER}
        else:
            more = {}
        return environment(self.here, **more)

    async def ready(self) -> None:
        if isinstance(self.side, SignalRestApi):
            await self.side.wait_for_receiver()

    def limit(self, chat: ChatId | None, *, delivers: bool = True) -> None:
        """Answer the sends to a chat with the error from now on."""
        self.limited, self.delivers = chat, delivers
        if isinstance(self.side, SignalRestApi):
            self.side.answer_send = self._rest_answer
        else:
            self.side.on_send = self._refuse

    def shown(self, chat: ChatId) -> list[tuple[str, int]]:
        """Return the view of phones in a chat: the last words and the timestamp of each message."""
        sends = [(one.chat, one.text, one.timestamp) for one in self.side.sent]
        return [(text.split()[-1], timestamp) for where, text, timestamp in sends if where == chat]

    async def until_shown(
        self, chat: ChatId, *words: str, seconds: float = WAIT_SECONDS
    ) -> list[int]:
        await self.side.until(
            lambda: [text for text, _ in self.shown(chat)] == [*words], seconds=seconds
        )
        return [timestamp for _, timestamp in self.shown(chat)]

    def _rest_answer(self, chat: ChatId) -> Answer | None:
        if chat != self.limited:
            return None
        self.tried_at.append(time.monotonic())
        body = BODIES[self.kind]
        return Answer(body.status, body.body, after_delivery=self.delivers)

    async def _refuse(self, sent: Sent) -> None:
        if sent.chat != self.limited:
            return
        self.tried_at.append(time.monotonic())
        refusal = RefusedAfterDelivery if self.delivers else Refusal
        if self.kind == IO:
            raise refusal(-32603, "Failed to send: [429] Rate limited (RateLimitException)")
        code, fates = CODES[self.kind]
        results = [{"type": fate, "token": "", "recipientAddress": {}} for fate in fates]
        response = {"timestamp": sent.timestamp, "results": results}
        raise refusal(code, "Failed to send message", {"response": response})


@asynccontextmanager
async def stage(kind: str) -> AsyncIterator[Stage]:
    async with world() as here, SignalRestApi.listen() as api:
        yield Stage(kind, here, api if kind in OVER_GATEWAY else here.signal)


@pytest.mark.parametrize("kind", [*OVER_DAEMON, *OVER_GATEWAY])
async def test_answer_that_arrived_despite_its_error_is_shown_once(kind: str) -> None:
    ada, ben = ChatId.direct(ADA.aci), ChatId.direct(BEN.aci)
    async with stage(kind) as here, running_bot(here.here.settings(**here.overrides)):
        await here.ready()
        here.limit(ada)
        await here.people.say("one")
        await here.until_shown(ada, "one")
        # Other chats continue in the meantime.
        await here.people.say("other", author=BEN)
        await here.until_shown(ben, "other")
        await here.people.say("two")
        here.limit(None)
        ((_, timestamp),) = here.shown(ada)
        await here.people.deliver_receipt(timestamp)
        await here.until_shown(ada, "one", "two")


@pytest.mark.parametrize("kind", [TOLD, PLAIN])
async def test_group_answer_that_arrived_despite_its_error_is_shown_once(kind: str) -> None:
    team = ChatId.group(TEAM)
    async with stage(kind) as here, running_bot(here.here.settings(**here.overrides)):
        await here.ready()
        here.people.groups[TEAM] = Group(members={ADA.aci: ADA, BEN.aci: BEN})
        here.limit(team)
        await here.people.say("one", group=TEAM)
        ((timestamp),) = await here.until_shown(team, "one")
        here.limit(None)
        await here.people.say("two", group=TEAM)
        await here.people.deliver_receipt(timestamp, BEN)
        await here.until_shown(team, "one", "two")


@pytest.mark.parametrize("kind", [*OVER_DAEMON, *OVER_GATEWAY])
async def test_answer_that_did_not_arrive_is_sent_again_with_growing_pauses(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PAUSES", "LIMITED_PAUSES"):
        monkeypatch.setattr(outbox, name, (0.2, 1.0))
    ada = ChatId.direct(ADA.aci)
    async with stage(kind) as here, running_bot(here.here.settings(**here.overrides)):
        await here.ready()
        here.limit(ada, delivers=False)
        await here.people.say("hello")
        while len(here.tried_at) < LIMITS:  # noqa: ASYNC110 - the bot tells nobody
            await asyncio.sleep(0.01)
        here.limit(None)
        await here.until_shown(ada, "hello")
        arrived_at = time.monotonic()
    first, second = here.tried_at
    assert 0.2 <= second - first < arrived_at - second


@pytest.mark.parametrize("kind", [TOLD, IO, PLAIN, HIDDEN])
async def test_kill_during_doubt_shows_answer_once_if_receipt_came_before(kind: str) -> None:
    ada = ChatId.direct(ADA.aci)
    async with stage(kind) as here:
        settings = here.environment
        async with daemon(settings, folder=here.here.folder, module=HASTY) as bot:
            await here.ready()
            here.limit(ada)
            await here.people.say("one")
            (timestamp,) = await here.until_shown(ada, "one")
            await bot.event("outbox.will_retry")
            await here.people.deliver_receipt(timestamp)
            await until_stored(here.here, timestamp)
            await bot.killed()
        here.limit(None)
        async with daemon(settings, folder=here.here.folder, module=HASTY):
            await here.ready()
            await here.people.say("two")
            await here.until_shown(ada, "one", "two")


async def test_kill_before_the_error_shows_answer_once_if_receipt_came() -> None:
    taken: asyncio.Queue[Sent] = asyncio.Queue()

    async def never_answer(sent: Sent) -> None:
        here.signal.sent.append(sent)
        taken.put_nowait(sent)
        await asyncio.Event().wait()

    async with world() as here:
        settings = environment(here)
        async with daemon(settings, folder=here.folder, module=HASTY) as bot:
            here.signal.on_send = never_answer
            await here.signal.say("one")
            sent = await taken.get()
            await here.signal.deliver_receipt(sent.timestamp)
            await until_stored(here, sent.timestamp)
            await bot.killed()
        here.signal.on_send = None
        async with daemon(settings, folder=here.folder, module=HASTY):
            await here.signal.say("two")
            await here.signal.wait_for(lambda sent: sent.text.endswith("two"))
    assert [sent.text.split()[-1] for sent in here.signal.sent] == ["one", "two"]


async def until_stored(here: World, timestamp: int) -> None:
    sql = (
        "SELECT timestamp FROM confirmations WHERE timestamp = ?1"
        " UNION SELECT signal_timestamp FROM outbox WHERE signal_timestamp = ?1"
    )
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            with copied(here.folder / "store.db") as database:
                if database.execute(sql, (timestamp,)).fetchall():
                    return
            await asyncio.sleep(0.02)
