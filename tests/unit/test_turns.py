"""How a turn is stopped and changed at any moment, and what it says came of that."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bot.dispatch.background.file_cleanup import FileCleanup
from bot.dispatch.mailboxes import Job, Mailboxes
from bot.dispatch.turns.running import TurnChanged, Turns, TurnStopped
from bot.dispatch.turns.suspended import SuspendedTurns
from conversation_store.models import AcceptedMessage, ReceivedFile
from conversation_store.store import ConversationStore
from tests.fakes.partial_messenger import PartialMessenger
from tests.unit.stores import ADA, accept, received, store_at, waiting

LATER = 1_000
"""The id of a !stop that came after everything else."""


class NoFiles(PartialMessenger):
    """A Signal side that has no files."""

    async def discard_file(self, file: ReceivedFile) -> None: ...


@dataclass(frozen=True, slots=True)
class Place:
    """Turns of one chat, and where its messages wait."""

    turns: Turns
    mailboxes: Mailboxes
    store: ConversationStore
    pieces: list[AcceptedMessage]


def _never(_: object) -> None:
    raise AssertionError("No turn waits for people here.")


@asynccontextmanager
async def place(folder: Path, *, pieces: int = 1) -> AsyncIterator[Place]:
    async with store_at(folder) as store, asyncio.TaskGroup() as tasks:
        mailboxes = Mailboxes(tasks)
        waiting = SuspendedTurns(store, queue=_never, forget=_never)
        turns = Turns(mailboxes, store, FileCleanup(NoFiles()), waiting)
        accepted = [await accept(store, received(number)) for number in range(1, pieces + 1)]
        yield Place(turns, mailboxes, store, accepted)


def told_while_it_ends(tell: Callable[[], object]) -> Callable[[], Coroutine[Any, Any, str]]:
    """Work that is done in the same step in which somebody tells its turn something."""

    async def work() -> str:
        tell()
        return "done"

    return work


async def test_who_changes_a_turn_at_the_moment_when_it_is_done_has_it_begin_afresh(
    tmp_path: Path,
) -> None:
    async with place(tmp_path) as here:
        (piece,) = here.pieces
        revised = replace(piece, message=replace(piece.message, text="other words"))
        with pytest.raises(TurnChanged):
            await here.turns.run(
                ADA, here.pieces, told_while_it_ends(lambda: here.turns.revise(revised))
            )
        assert here.pieces == [revised]
        assert not here.turns.revise(revised)


async def test_who_stops_a_turn_at_the_moment_when_it_is_done_is_told_that_it_was(
    tmp_path: Path,
) -> None:
    async with place(tmp_path) as here:
        stops: list[asyncio.Task[int]] = []

        async def work() -> str:
            stops.append(asyncio.create_task(here.turns.stop(ADA, before=LATER)))
            await asyncio.sleep(0)
            return "done"

        assert await here.turns.run(ADA, here.pieces, work) == "done"
        assert await stops[0] == 0


async def test_a_turn_that_is_slow_to_let_go_may_be_changed_again_and_stopped(
    tmp_path: Path,
) -> None:
    async with place(tmp_path, pieces=2) as here:
        begun, letting_go, may_go = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def work() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                letting_go.set()
                await may_go.wait()

        turn = asyncio.create_task(here.turns.run(ADA, here.pieces, work))
        await begun.wait()
        assert here.turns.withdraw(ADA, here.pieces[0].id)
        await letting_go.wait()
        assert here.turns.piece(ADA, here.pieces[0].id) is None
        stop = asyncio.create_task(here.turns.stop(ADA, before=LATER))
        await asyncio.sleep(0)
        assert here.turns.withdraw(ADA, here.pieces[1].id)
        may_go.set()
        with pytest.raises(TurnStopped):
            await turn
        assert await stop == 2


async def test_a_stop_ends_nothing_that_was_asked_for_after_it(tmp_path: Path) -> None:
    async with place(tmp_path, pieces=2) as here:
        stop, question = here.pieces

        async def work() -> int:
            return await here.turns.stop(ADA, before=stop.id)

        assert await here.turns.run(ADA, [question], work) == 0


async def test_what_a_stop_drops_is_closed_for_good(tmp_path: Path) -> None:
    async def nothing() -> None: ...

    async with place(tmp_path, pieces=2) as here:
        for piece in here.pieces:
            here.mailboxes.add(ADA, Job(nothing, piece))
        assert await here.turns.stop(ADA, before=LATER) == 2
        assert await waiting(here.store) == []
