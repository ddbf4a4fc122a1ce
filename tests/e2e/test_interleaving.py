"""Two people, two groups, two private chats, all at once: nothing leaks from one to another."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.signal.events import Person
from conversation_store.models import ChatId
from tests.e2e.running_bot import WAIT_SECONDS, World, running_bot, world
from tests.fakes.openai_server import Request, text, tool_calls
from tests.fakes.signal_side import ADA, Sent

BEN: Final = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+15550100002", name="Ben")
GROUPS: Final = (
    "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
    "ISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0A=",
)
TOKEN: Final = re.compile(r"\b(ada|ben|one|two)x(\d+)\b")
PLACES: Final[dict[str, tuple[str | None, ChatId]]] = {
    "ada": (None, ChatId.direct(ADA.aci)),
    "ben": (None, ChatId.direct(BEN.aci)),
    "one": (GROUPS[0], ChatId.group(GROUPS[0])),
    "two": (GROUPS[1], ChatId.group(GROUPS[1])),
}
MAX_TURNS_OF_THE_LOOP: Final = 40
"""Delays of the model before an answer, so that turns of different chats overtake each other."""


@dataclass(frozen=True, slots=True)
class Act:
    """An action of a person in a chat."""

    place: str
    by_ada: bool
    deed: str


ACTS: Final = st.lists(
    st.builds(
        Act,
        place=st.sampled_from(sorted(PLACES)),
        by_ada=st.booleans(),
        deed=st.sampled_from(
            ("ask", "ask", "ask", "ask for a tool", "say to others", "edit", "delete", "stop")
        ),
    ),
    min_size=4,
    max_size=24,
)


class Scene:
    """All actions of people, and the views of the model and the chats."""

    def __init__(self, here: World, random: Random) -> None:
        self.here = here
        self.random = random
        self.leaks: list[str] = []
        self._number = 0
        self._last: dict[tuple[str, str], int] = {}
        here.model.handler = self.answer
        here.signal.on_send = self.look_at

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Act as a model that repeats its whole request."""
        for _ in range(self.random.randrange(MAX_TURNS_OF_THE_LOOP)):
            await asyncio.sleep(0)
        said = str(request.body["messages"])
        places = {place for place, _ in TOKEN.findall(said)}
        if len(places) > 1:
            self.leaks.append(f"the model was told of {sorted(places)} at once")
        last = request.body["messages"][-1]
        if last["role"] == "user" and "tool" in last["content"].splitlines()[-1]:
            await tool_calls(("calculate", {"expression": "6*7"}))(request, writer)
        else:
            words = " ".join(dict.fromkeys(match[0] for match in TOKEN.finditer(said)))
            await text(f"I know of {words}")(request, writer)

    async def look_at(self, sent: Sent) -> None:
        """Look for words of one place in another."""
        words = sent.text + (sent.quote.text if sent.quote is not None else "")
        for place, _ in TOKEN.findall(words):
            if PLACES[place][1] != sent.chat:
                self.leaks.append(f"{place} was told elsewhere")

    async def play(self, acts: Sequence[Act]) -> None:
        """Do one thing after the other, without waiting for answers."""
        for act in acts:
            await self.do(act)

    async def do(self, act: Act) -> None:
        author = {"ada": ADA, "ben": BEN}.get(act.place, ADA if act.by_ada else BEN)
        group, _ = PLACES[act.place]
        last = self._last.get((act.place, author.aci))
        signal = self.here.signal
        if act.deed == "stop":
            await signal.say("!stop", author=author, group=group, mention=group is not None)
        elif act.deed == "edit" and last is not None:
            words = f"{self.token(act.place)} changed"
            edit = await signal.edit(
                words, last, author=author, group=group, mention=group is not None
            )
            self._last[act.place, author.aci] = edit
        elif act.deed == "delete" and last is not None:
            await signal.delete(last, author=author, group=group)
        else:
            mention = group is not None and act.deed != "say to others"
            words = f"{self.token(act.place)} {act.deed}"
            sent = await signal.say(words, author=author, group=group, mention=mention)
            self._last[act.place, author.aci] = sent

    def token(self, place: str) -> str:
        """Return a word that no other message contains."""
        self._number += 1
        return f"{place}x{self._number}"

    async def ask_everywhere_and_wait(self) -> None:
        """Ask once more in every chat, and wait until each has the answer."""
        for place, (group, chat) in PLACES.items():
            author = BEN if place == "ben" else ADA
            token = self.token(place)
            await self.here.signal.say(
                f"{token} end", author=author, group=group, mention=group is not None
            )
            pattern = re.compile(rf"\b{token}\b")
            await self.here.signal.wait_for(
                lambda sent, chat=chat, pattern=pattern: (  # type: ignore[misc]
                    sent.chat == chat and pattern.search(sent.text) is not None
                ),
                seconds=WAIT_SECONDS,
            )


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(acts=ACTS, seed=st.integers(0, 2**16))
@pytest.mark.full
def test_nothing_leaks_from_one_conversation_to_another(acts: list[Act], seed: int) -> None:
    async def live() -> None:
        async with world() as here:
            scene = Scene(here, Random(seed))
            async with running_bot(here.settings()):
                await scene.play(acts)
                await scene.ask_everywhere_and_wait()
            assert scene.leaks == []

    asyncio.run(live())
