"""Answers, `!stop`, edits, deletions and restarts in any order leave nothing waiting.

Every message is either answered, stopped or forgotten.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from random import Random
from typing import Final

import apsw
import pytest

from bot.signal.events import Person
from tests.e2e.running_bot import World, kill, running_bot, world
from tests.fakes.openai_server import Request, text, tool_calls
from tests.fakes.signal_side import Sent

PEOPLE: Final = [Person(aci=f"{number:08x}-0000-4000-8000-000000000000") for number in range(4)]
ORDINARY_LIVES: Final = 2
FULL_LIVES: Final = 6
ROUNDS: Final = 3
QUESTION: Final = re.compile(r"❓ Which colour for (\w+)\?")
ASKED: Final = re.compile(r"paint (\w+)\Z")
ANSWER: Final = re.compile(r"(\w+): ")
DRAIN_SECONDS: Final = 15.0

Deed = Callable[[], Awaitable[object]]


@pytest.mark.parametrize(
    ("seed", "lives"),
    [(1, ORDINARY_LIVES), *(pytest.param(n, FULL_LIVES, marks=pytest.mark.full) for n in range(8))],
)
async def test_every_message_has_exactly_one_outcome_in_any_combination(
    seed: int, lives: int
) -> None:
    random = Random(seed)
    async with world(_model) as here:
        settings = here.settings()
        on_their_way: Counter[str] = Counter()
        for _ in range(lives):
            async with running_bot(settings) as bot:
                async with asyncio.TaskGroup() as tasks:
                    for person in PEOPLE:
                        tasks.create_task(_talk(here, person, Random(random.random())))
                if random.random() < 0.5:
                    await kill(bot)
                    on_their_way.update(_unsent_answers(here))
        async with running_bot(settings):
            await _answer_all(here)
    answers = Counter(
        found[1] for sent in here.signal.sent if (found := ANSWER.match(sent.text)) is not None
    )
    # No phone confirms anything here, so a send interrupted by a kill may happen twice.
    assert all(count <= 1 + on_their_way[name] for name, count in answers.items()), answers


async def _model(request: Request, writer: asyncio.StreamWriter) -> None:
    messages = request.body["messages"]
    asked = next(m["content"] for m in reversed(messages) if m["role"] == "user")
    name = ASKED.search(asked)
    if name is None:
        step = text("Thank you.")
    elif messages[-1]["role"] == "tool":
        step = text(f"{name[1]}: {messages[-1]['content']}")
    else:
        question = {"question": f"Which colour for {name[1]}?", "options": ["Red", "Blue"]}
        step = tool_calls(("ask_user", question))
    await step(request, writer)


def _questions(here: World, person: Person) -> list[Sent]:
    """Return the questions to a person that have no answer."""
    answered = {
        found[1] for sent in here.signal.sent if (found := ANSWER.match(sent.text)) is not None
    }
    return [
        sent
        for sent in here.signal.sent
        if sent.chat.value == person.aci
        and (found := QUESTION.match(sent.text)) is not None
        and found[1] not in answered
    ]


async def _talk(here: World, person: Person, random: Random) -> None:
    for _ in range(ROUNDS):
        name = f"n{random.getrandbits(40):x}"
        await here.signal.say("!apart", author=person)  # keeps messages from joining
        said = await here.signal.say(f"paint {name}", author=person)
        if random.random() < 0.7:
            count = len(here.signal.sent)
            await _something_after(here, count)
        deeds: list[Deed] = [
            lambda: here.signal.say("!stop", author=person),
            lambda: _choose(here, person, random),
            lambda: _choose(here, person, random),
            lambda: here.signal.edit(f"paint {name}x", said, author=person),  # noqa: B023
            lambda: here.signal.delete(said, author=person),  # noqa: B023
        ]
        for deed in random.sample(deeds, random.randint(0, 3)):
            await deed()
            if random.random() < 0.3:
                await asyncio.sleep(0.01)


async def _choose(here: World, person: Person, random: Random) -> None:
    open_questions = _questions(here, person)
    if not open_questions:
        return
    asked = random.choice(open_questions)
    if random.random() < 0.5:
        await here.signal.react("1️⃣", asked.timestamp, author=person)
    else:
        await here.signal.say("2", author=person, quote=asked.timestamp)


async def _answer_all(here: World) -> None:
    """Answer what is still asked, until nothing waits for anything."""
    async with asyncio.timeout(DRAIN_SECONDS):
        while not _is_at_rest(here):
            for person in PEOPLE:
                for asked in _questions(here, person):
                    await here.signal.react("1️⃣", asked.timestamp, author=person)
            await asyncio.sleep(0.05)


def _is_at_rest(here: World) -> bool:
    if here.signal.undelivered:
        return False
    # By the bot's own SQLite: closing a file with another one in this process would drop its locks.
    with closing(apsw.Connection(str(here.folder / "store.db"))) as store:
        ((left,),) = store.execute(
            "SELECT (SELECT count(*) FROM inbox WHERE state = 'waiting')"
            " + (SELECT count(*) FROM turns WHERE state = 'running')"
            " + (SELECT count(*) FROM questions WHERE state = 'open')"
            " + (SELECT count(*) FROM outbox WHERE state = 'waiting')"
        ).fetchall()
    return bool(left == 0)


def _unsent_answers(here: World) -> list[str]:
    """Return the people with waiting answers, sent or not."""
    with closing(apsw.Connection(str(here.folder / "store.db"))) as store:
        rows = store.execute("SELECT text FROM outbox WHERE state = 'waiting'").fetchall()
    return [found[1] for (said,) in rows if (found := ANSWER.match(str(said))) is not None]


async def _something_after(here: World, count: int) -> None:
    await here.signal.until(lambda: len(here.signal.sent) > count)
