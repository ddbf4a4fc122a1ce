"""In groups, commands and other dangerous calls need an admin's yes."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing

import pytest

from bot.chat.question_messages import ADMIN_NEEDED, NOT_COUNTED, NOT_YOURS
from bot.config.settings import Settings
from bot.signal.events import Person
from tests.e2e.running_bot import World, killed_bot, running_bot, story, world
from tests.e2e.test_approvals import question
from tests.e2e.test_conversation import BEN
from tests.e2e.test_workspace import GROUP
from tests.e2e.traces import there
from tests.fakes.openai_server import Step, script, text, tool_calls
from tests.fakes.signal_side import ADA, Sent

CAT = Person(aci="0d1e2f30-0000-4000-8000-00000000000c", number="+4915200000003", name="Cat")
LIST = ("run_command", {"command": "ls"})


def with_admins(here: World, **more: Mapping[str, object]) -> Settings:
    return here.settings(
        access={"admins": f"{ADA.aci},{CAT.aci}"},
        tools={"workspace": {"for": "everyone"}},
        **more,
    )


def listing() -> Step:
    return script(tool_calls(LIST), text("Done."))


async def asked_by(here: World, author: Person = BEN) -> Sent:
    """Ask in the group for a command; return the bot's question."""
    return await question(here, "list it", group=GROUP, mention=True, author=author)


async def test_command_in_a_group_runs_only_with_the_yes_of_an_admin() -> None:
    async with world(listing()) as here:
        async with running_bot(with_admins(here)):
            asked = await asked_by(here)
            assert asked.text.endswith(ADMIN_NEEDED)
            await here.signal.react("👍", asked.timestamp, group=GROUP, author=BEN)
            await here.signal.say("yes", quote=asked.timestamp, group=GROUP, author=BEN)
            assert (await here.answer()).text == NOT_COUNTED
            assert await here.reacted("👍", asked.timestamp, group=GROUP, author=CAT) == "Done."
        with closing(sqlite3.connect(here.folder / "store.db")) as store:
            rows = store.execute("SELECT author, outcome, allowed_by FROM audit").fetchall()
        assert rows == [(BEN.aci, "ok", CAT.aci)]


@pytest.mark.parametrize("refuser", [CAT, BEN])
async def test_no_of_an_admin_or_the_asker_ends_the_question(refuser: Person) -> None:
    async with story(listing(), with_admins) as here:
        asked = await asked_by(here)
        assert await here.reacted("👎", asked.timestamp, group=GROUP, author=refuser) == "Done."
        assert "the person said no" in here.told()


async def test_after_a_restart_the_question_still_needs_an_admin() -> None:
    async with world(listing()) as here:
        async with killed_bot(with_admins(here)):
            asked = await asked_by(here)
            await there(here, str(asked.timestamp))
        await here.signal.say("yes", quote=asked.timestamp, group=GROUP, author=BEN)
        async with running_bot(with_admins(here)):
            assert (await here.answer()).text == NOT_COUNTED
            assert await here.reacted("👍", asked.timestamp, group=GROUP, author=ADA) == "Done."
        assert "exit code 0" in here.told()


async def test_in_a_private_chat_the_asker_decides() -> None:
    async with story(listing(), with_admins) as here:
        asked = await question(here, "list it", author=BEN)
        assert "admin" not in asked.text
        assert await here.reacted("👍", asked.timestamp, author=BEN) == "Done."


async def test_people_outside_the_question_are_told_that_it_is_not_theirs() -> None:
    dan = Person(aci="0d1e2f30-0000-4000-8000-00000000000d", name="Dan")
    async with story(listing(), with_admins) as here:
        asked = await asked_by(here)
        assert await here.asked("no", quote=asked.timestamp, group=GROUP, author=dan) == NOT_YOURS
        assert await here.reacted("👎", asked.timestamp, group=GROUP, author=BEN) == "Done."
