"""Dangerous calls in groups: admins alone allow them, as many as ACCESS__QUORUM says."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing

import pytest

from bot.approvals.asked import NOT_YOURS
from bot.approvals.desk import NOT_COUNTED
from bot.approvals.question import ADMIN_NEEDED
from bot.config.settings import Settings
from bot.messaging.events import Person
from tests.e2e.running_bot import World, kill, running_bot, world
from tests.e2e.test_approvals import question
from tests.e2e.test_conversation import BEN
from tests.e2e.test_tools import told
from tests.e2e.test_workspace import GROUP
from tests.e2e.traces import there
from tests.fakes.openai_server import Step, script, text, tool_calls
from tests.fakes.signal_rest_api import NUMBER, SignalRestApi
from tests.fakes.signal_side import ADA, Sent

CAT = Person(aci="0d1e2f30-0000-4000-8000-00000000000c", number="+4915200000003", name="Cat")
REMOVE = ("run_command", {"command": "rm -f gone.txt"})
LIST = ("run_command", {"command": "ls"})
LONG = ("run_command", {"command": "rm -f " + " ".join(f"{n}.txt" for n in range(700))})
NONE_YET = "Only admins of the bot can allow this: 0 of 2 have said yes."
ONE_SO_FAR = "Only admins of the bot can allow this: 1 of 2 have said yes."


def with_quorum(here: World, quorum: int, **more: Mapping[str, object]) -> Settings:
    return here.settings(
        access={"admins": f"{ADA.aci},{CAT.aci}", "quorum": quorum},
        tools={"workspace": {"for": "everyone"}},
        **more,
    )


def removal() -> Step:
    return script(tool_calls(REMOVE), text("Done."), tool_calls(REMOVE), text("Again."))


async def asked_by(here: World, author: Person = BEN) -> Sent:
    """Have somebody ask in the group for what is dangerous; return the bot's question."""
    await here.signal.say("remove it", group=GROUP, mention=True, author=author)
    return await question(here)


async def refuse(here: World, asked: Sent) -> None:
    """Say no to a question that nobody has said yes to."""
    assert asked.text.endswith(NONE_YET)
    await here.signal.react("👎", asked.timestamp, group=GROUP, author=ADA)
    assert (await here.answer()).text == "Again."


async def test_a_dangerous_call_in_a_group_runs_once_as_many_admins_have_said_yes() -> None:
    async with world(removal()) as here:
        async with running_bot(with_quorum(here, 2)):
            asked = await asked_by(here)
            assert asked.text.endswith(NONE_YET)
            assert "♾️" not in asked.text
            await here.signal.react("👍", asked.timestamp, group=GROUP, author=BEN)
            await here.signal.say("yes", quote=asked.timestamp, group=GROUP, author=BEN)
            assert (await here.answer()).text == NOT_COUNTED
            await here.signal.react("👍", asked.timestamp, group=GROUP, author=ADA)
            edit = await here.signal.next_sent()
            assert edit.replaces == asked.timestamp
            assert edit.text == asked.text.replace(NONE_YET, ONE_SO_FAR)
            await here.signal.say("yes", quote=asked.timestamp, group=GROUP, author=ADA)
            await here.signal.react("♾️", edit.timestamp, group=GROUP, author=ADA)
            await here.signal.say("yes", quote=edit.timestamp, group=GROUP, author=CAT)
            assert (await here.answer()).text == "Done."
            await refuse(here, await asked_by(here))
        with closing(sqlite3.connect(here.folder / "store.db")) as store:
            rows = store.execute("SELECT author, outcome, allowed_by FROM audit").fetchall()
        assert rows[0] == (BEN.aci, "ok", f"{CAT.aci},{ADA.aci}")


@pytest.mark.parametrize("refuser", [CAT, BEN])
async def test_one_no_of_an_admin_or_of_whoever_asked_is_enough(refuser: Person) -> None:
    async with world(removal()) as here, running_bot(with_quorum(here, 2)):
        asked = await asked_by(here)
        await here.signal.react("👍", asked.timestamp, group=GROUP, author=ADA)
        edit = await here.signal.next_sent()
        await here.signal.react("👎", edit.timestamp, group=GROUP, author=refuser)
        assert (await here.answer()).text == "Done."
        assert "the person said no" in told(here)


async def test_each_yes_survives_a_kill_and_the_edited_question_can_be_answered_after_it() -> None:
    async with world(removal()) as here:
        async with running_bot(with_quorum(here, 2)) as bot:
            asked = await asked_by(here)
            await here.signal.react("👍", asked.timestamp, group=GROUP, author=ADA)
            edit = await here.signal.next_sent()
            await there(here, str(edit.timestamp))
            await kill(bot)
        await here.signal.react("👍", asked.timestamp, group=GROUP, author=ADA)
        await here.signal.react("👍", edit.timestamp, group=GROUP, author=CAT)
        async with running_bot(with_quorum(here, 2)):
            assert (await here.answer()).text == "Done."
        assert "exit code 0" in told(here)
    assert [sent.text[:1] for sent in here.signal.sent if sent.replaces is None][:1] == ["❓"]
    assert len([sent for sent in here.answers() if sent.startswith("❓")]) == 2


async def test_an_admin_who_asks_counts_and_has_to_say_yes_as_well() -> None:
    async with world(removal()) as here, running_bot(with_quorum(here, 2)):
        asked = await asked_by(here, ADA)
        await here.signal.react("👍", asked.timestamp, group=GROUP, author=CAT)
        assert (await here.signal.next_sent()).text.endswith(ONE_SO_FAR)
        await here.signal.react("👍", asked.timestamp, group=GROUP, author=ADA)
        assert (await here.answer()).text == "Done."


async def test_by_default_one_admin_allows_what_is_dangerous_and_nobody_else() -> None:
    async with world(removal()) as here, running_bot(with_quorum(here, 1)):
        asked = await asked_by(here)
        assert asked.text.endswith(ADMIN_NEEDED)
        await here.signal.say("yes", quote=asked.timestamp, group=GROUP, author=BEN)
        assert (await here.answer()).text == NOT_COUNTED
        await here.signal.react("♾️", asked.timestamp, group=GROUP, author=CAT)
        assert (await here.answer()).text == "Done."
        await here.signal.say("again", group=GROUP, mention=True, author=BEN)
        assert (await here.answer()).text == "Again."


async def test_what_one_admin_has_allowed_for_longer_does_not_stand_for_several() -> None:
    async with world(removal()) as here:
        async with running_bot(with_quorum(here, 1)):
            asked = await asked_by(here)
            await here.signal.react("♾️", asked.timestamp, group=GROUP, author=ADA)
            assert (await here.answer()).text == "Done."
        async with running_bot(with_quorum(here, 2)):
            await refuse(here, await asked_by(here))


async def test_in_a_private_chat_and_for_other_calls_whoever_asks_decides() -> None:
    steps = script(tool_calls(REMOVE), text("Done."), tool_calls(LIST), text("Listed."))
    async with world(steps) as here, running_bot(with_quorum(here, 2)):
        await here.signal.say("remove it", author=BEN)
        await here.signal.react("👍", (await question(here)).timestamp, author=BEN)
        assert (await here.answer()).text == "Done."
        await here.signal.say("list", group=GROUP, mention=True, author=BEN)
        asked = await question(here)
        assert "admin" not in asked.text
        await here.signal.react("👍", asked.timestamp, group=GROUP, author=BEN)
        assert (await here.answer()).text == "Listed."


async def test_a_question_of_several_messages_is_counted_in_a_line_below() -> None:
    async with world(script(tool_calls(LONG), text("Done."))) as here:
        settings = here.settings(
            access={"admins": f"{ADA.aci},{BEN.aci},{CAT.aci}", "quorum": 3},
            tools={"workspace": {"for": "everyone"}},
        )
        async with running_bot(settings):
            asked = await asked_by(here)
            while not asked.text.endswith("0 of 3 have said yes."):
                asked = await question(here)
            await here.signal.react("👍", asked.timestamp, group=GROUP, author=ADA)
            line = await here.signal.next_sent()
            assert line.text == "Only admins of the bot can allow this: 1 of 3 have said yes."
            assert line.replaces is None
            await here.signal.react("👍", asked.timestamp, group=GROUP, author=BEN)
            edit = await here.signal.next_sent()
            assert edit.text == "Only admins of the bot can allow this: 2 of 3 have said yes."
            assert edit.replaces == line.timestamp
            await here.signal.react("👍", asked.timestamp, group=GROUP, author=CAT)
            assert (await here.answer()).text == "Done."


async def test_strangers_to_the_question_are_told_that_it_is_not_theirs() -> None:
    dan = Person(aci="0d1e2f30-0000-4000-8000-00000000000d", name="Dan")
    async with world(removal()) as here, running_bot(with_quorum(here, 2)):
        asked = await asked_by(here)
        await here.signal.say("no", quote=asked.timestamp, group=GROUP, author=dan)
        assert (await here.answer()).text == NOT_YOURS
        await here.signal.react("👎", asked.timestamp, group=GROUP, author=BEN)
        assert (await here.answer()).text == "Done."


async def test_over_rest_admins_say_yes_by_reactions_and_replies_as_well() -> None:
    async with world(removal()) as here, SignalRestApi.listen() as api:
        signal = {"url": api.url, "phone_number": NUMBER}
        async with running_bot(with_quorum(here, 2, signal=signal)):
            await api.wait_for_receiver()
            await api.say("remove it", group=GROUP, mention=True, author=BEN)
            await api.wait_until(lambda: len(api.sent) == 1)
            await api.react("👍", api.sent[0].timestamp, group=GROUP, author=ADA)
            await api.wait_until(lambda: len(api.sent) == 2)
            assert api.sent[1].replaces == api.sent[0].timestamp
            assert api.sent[1].text.endswith(ONE_SO_FAR)
            await api.say("yes", quote=api.sent[1].timestamp, group=GROUP, author=CAT)
            await api.wait_until(lambda: api.sent[-1].text == "Done.")
