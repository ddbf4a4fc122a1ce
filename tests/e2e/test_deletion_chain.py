"""A message that is taken back leaves no byte in the bot.

Each message has a secret word of its own, and the model repeats every secret. So everything
derived from a message contains its secret.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from structlog.testing import capture_logs

from conversation_store.models import Quote
from tests.e2e.parrot import (
    Call,
    Parrot,
    ask,
    catch_up,
    delegate,
    new_secret,
    recall,
    remember,
    remind,
    search_files,
)
from tests.e2e.running_bot import World, running_bot, world
from tests.e2e.test_conversation import BEN
from tests.e2e.traces import LOOK_EVERY_SECONDS, files_of, rows_with, there
from tests.fakes.signal_side import ADA, Group, Sent, SharedFile

TEAM: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
GONE_SECONDS: Final = 10.0
TIMER_SECONDS: Final = 2

DELETION: Final = "deletion"
EDIT: Final = "edit"
UNDO: Final = "undo"
TIMER: Final = "timer"
CATCH_UP_OFF: Final = "catch-up off"

ACTIONS: Final[Mapping[str, Sequence[Call]]] = {
    "write": (),
    "recall": (recall,),
    "remind of a fact": (recall, remind),
    "ask and keep": (ask, remember, remind),
    "send a file": (),
    "search files": (search_files, remember, remind),
    "quote": (remember, remind),
    "quote the bot": (remind,),
    "react to the bot": (remind,),
    "talk to others": (),
    "catch up in private": (catch_up, remember, remind),
    "delegate": (delegate, remember),
    "edit": (remember,),
}
"""The story with the calls of the model. Most of it is in the private chat or in the group."""

Actions = Sequence[tuple[str, bool]]
"""The story, and whether it happens in the group."""


@dataclass
class Said:
    """A message of a person.

    Attributes:
        is_bens: Ben wrote it to others; all other messages are Ada's, to the bot.
        is_timed: it disappears.
    """

    secret: str
    at: int
    group: str | None
    is_bens: bool = False
    is_timed: bool = False


class History:
    """A private chat and a group with their messages."""

    def __init__(self, here: World, parrot: Parrot, timed: int | None) -> None:
        self.said: list[Said] = []
        self._here = here
        self._parrot = parrot
        self._timed = timed
        # The text of a reminder stays until it is said, however short the timer is.
        self._left_out = () if timed is None else (remind,)
        self._answers: dict[str | None, Sent] = {}

    async def act(self, name: str, *, in_group: bool) -> None:
        plan = [call for call in ACTIONS[name] if call not in self._left_out]
        if name == "talk to others":
            await self._talk()
        elif name == "quote":
            await self._quote(plan)
        elif name == "edit" and (mine := [one for one in self.said if not one.is_bens]):
            await self.edit(mine[-1], new_secret(), plan)
        elif name == "catch up in private":
            await self._write(name, plan, None)
        else:
            await self._write(name, plan, TEAM if in_group else None)

    async def edit(self, one: Said, secret: str, plan: Sequence[Call] = ()) -> None:
        self._parrot.plan = plan
        one.secret = secret
        await self._here.signal.edit(
            f"I meant {secret}",
            one.at,
            group=one.group,
            mention=one.group is not None,
            expires_seconds=TIMER_SECONDS if one.is_timed else 0,
        )
        await self._answered(one.group)

    async def command(self, words: str, group: str | None) -> None:
        self._parrot.plan = ()
        await self._here.signal.say(words, group=group, mention=group is not None)
        await self._here.answer()

    async def _write(self, name: str, plan: Sequence[Call], group: str | None) -> None:
        secret = new_secret()
        file = SharedFile("text/plain", f"In the file: {secret}".encode(), f"{secret}.txt")
        quoted = self._answers.get(group) if name == "quote the bot" else None
        if name == "react to the bot" and (answer := self._answers.get(group)) is not None:
            await self._here.signal.react("👎", answer.timestamp, group=group)
        self._parrot.plan = plan
        at = await self._here.signal.say(
            f"My word is {secret}",
            group=group,
            mention=group is not None,
            files=[file] if name == "send a file" else [],
            quote=None if quoted is None else quoted.timestamp,
            expires_seconds=self._timer(),
        )
        self._add(Said(secret, at, group))
        await self._answered(group)

    async def _talk(self) -> None:
        secret = new_secret()
        at = await self._here.signal.say(
            f"I say {secret}", author=BEN, group=TEAM, expires_seconds=self._timer()
        )
        self._add(Said(secret, at, TEAM, is_bens=True))
        await there(self._here, secret)

    async def _quote(self, plan: Sequence[Call]) -> None:
        """Quote the last message in the group."""
        if not any(one.group == TEAM for one in self.said):
            await self._talk()
        quoted = [one for one in self.said if one.group == TEAM][-1]
        author = BEN if quoted.is_bens else ADA
        self._parrot.plan = plan
        secret = new_secret()
        at = await self._here.signal.say(
            f"What is that, {secret}?",
            group=TEAM,
            mention=True,
            quote=Quote(quoted.at, author.aci, f"I say {quoted.secret}"),
            expires_seconds=self._timer(),
        )
        self._add(Said(secret, at, TEAM))
        await self._answered(TEAM)

    async def _answered(self, group: str | None) -> None:
        """Wait for the answer, and answer questions of the bot before it."""
        while (sent := await self._here.answer()).text.startswith("❓"):
            await there(self._here, str(sent.timestamp))
            if "1. Red" not in sent.text:  # it asks before a call
                await self._here.signal.react("👍", sent.timestamp, group=group)
                continue
            secret = new_secret()
            at = await self._here.signal.say(
                f"Neither, {secret}",
                quote=sent.timestamp,
                group=group,
                expires_seconds=self._timer(),
            )
            self._add(Said(secret, at, group))
        self._answers[group] = sent

    def _add(self, said: Said) -> None:
        said.is_timed = len(self.said) == self._timed
        self.said.append(said)

    def _timer(self) -> int:
        return TIMER_SECONDS if len(self.said) == self._timed else 0


def chosen(said: Sequence[Said], way: str, place: int) -> Said:
    """Return the message that is taken back; `!catchup off` takes back what no turn was told."""
    if way == UNDO:
        return [one for one in said if not one.is_bens][-1]
    if way == CATCH_UP_OFF:
        return [one for one in said if one.is_bens][-1]
    return said[place]


async def take_back(here: World, history: History, way: str, one: Said) -> None:
    if way == DELETION:
        author = BEN if one.is_bens else ADA
        await here.signal.delete(one.at, author=author, group=one.group)
    elif way == EDIT:
        await history.edit(one, "nothing")
    elif way == UNDO:
        await history.command("!undo", one.group)
    elif way == CATCH_UP_OFF:
        await history.command("!catchup off", TEAM)


def places_with(here: World, secret: str) -> list[str]:
    """Return where the bot has a secret while it runs."""
    in_files = any(has_secret(path, secret) for path in here.folder.glob("workspaces/**/*"))
    return ["rows"] * bool(rows_with(here, secret)) + ["workspace"] * in_files


def has_secret(path: Path, secret: str) -> bool:
    """Return whether a file's name or content has a secret; the bot may just be deleting it."""
    try:
        return path.is_file() and (secret in path.name or secret.encode() in path.read_bytes())
    except FileNotFoundError:
        return False


async def gone(here: World, secret: str) -> None:
    """Wait until rows and files no longer have a secret."""
    try:
        async with asyncio.timeout(GONE_SECONDS):
            while places_with(here, secret):  # noqa: ASYNC110 - files have no event
                await asyncio.sleep(LOOK_EVERY_SECONDS)
    except TimeoutError:
        assert places_with(here, secret) == []


async def leaves_no_trace(actions: Actions, way: str, place: int) -> None:
    """Play a history, take a message back, and look for the message everywhere.

    Args:
        place: chooses the message.
    """
    parrot = Parrot()
    async with world(parrot) as here:
        here.signal.groups[TEAM] = Group(members={ADA.aci: ADA, BEN.aci: BEN}, admins={ADA.aci})
        with capture_logs() as log:
            async with running_bot(here.settings(access={"admins": ADA.aci})):
                history = History(here, parrot, place if way == TIMER else None)
                await history.command("!catchup on", TEAM)
                for name, in_group in actions:
                    await history.act(name, in_group=in_group)
                one = chosen(history.said, way, place)
                secret = one.secret
                await take_back(here, history, way, one)
                await gone(here, secret)
                before = len(here.model.requests)
                for group in (None, TEAM):
                    await history.command("hello", group)
        assert places_with(here, secret) == []
        assert secret not in json.dumps(here.model.requests[before:])
        assert secret.encode() not in files_of(here)
        assert secret not in str(log)


STORIES: Final[Mapping[str, tuple[Actions, str, int]]] = {
    "answer to a question, by edit": ([("ask and keep", False)], EDIT, 1),
    "fact and reminder from catch-up, by catch-up off": (
        [("write", True), ("talk to others", True), ("catch up in private", False)],
        CATCH_UP_OFF, 0,
    ),
    "file, by undo": ([("send a file", False)], UNDO, 0),
    "fact and reminder from a file": (
        [("send a file", False), ("search files", False)], DELETION, 0,
    ),
    "quote of a message with a timer": ([("write", True), ("quote", True)], TIMER, 0),
    "quote of an answer": ([("write", True), ("quote the bot", True)], DELETION, 0),
    "reaction to an answer": ([("write", True), ("react to the bot", True)], DELETION, 0),
    "reaction to an answer with a timer": (
        [("write", False), ("react to the bot", False)], TIMER, 0,
    ),
    "reaction to an answer, by edit": (
        [("write", False), ("react to the bot", False)], EDIT, 0,
    ),
    "task of a helper": ([("delegate", True), ("remind of a fact", True)], DELETION, 0),
    "words that the turn of an edit was not told, by catch-up off": (
        [("recall", True), ("talk to others", True), ("edit", True), ("talk to others", True)],
        CATCH_UP_OFF, 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
async def test_taken_back_message_leaves_no_trace(story: str) -> None:
    await leaves_no_trace(*STORIES[story])
