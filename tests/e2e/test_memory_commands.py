"""`!memory`, `!instructions`, and the data that `!clear` keeps."""

import json
from typing import Any

from bot.chat.prompt import INSTRUCTIONS, REMEMBERED, UNTRUSTED_GUIDELINE
from bot.commands import behaviour, memory
from bot.commands.base import ONLY_ADMINS
from bot.commands.questions import INSTRUCTIONS_STAY, STILL_REMEMBERED
from tests.e2e.running_bot import World, running_bot, story, world
from tests.e2e.test_conversation import BEN
from tests.e2e.test_memory import FACT, GROUP, SECRET, facts_in, recall, remember
from tests.e2e.test_tools import system_text
from tests.e2e.traces import files_of, gone_from_files
from tests.fakes.openai_server import script, text, tool_calls
from tests.fakes.signal_side import ADA

IN_GROUP: dict[str, Any] = {"group": GROUP, "mention": True}
TONE = "Speak like a pirate"


async def let_remember(here: World, *facts: str, **chat: Any) -> None:
    calls = [("remember", {"text": fact}) for fact in facts]
    here.model.handler = script(tool_calls(*calls), text("Yes."))
    await here.asked("remember that", **chat)


async def test_facts_are_listed_and_forgotten_by_numbers_that_stay() -> None:
    async with story() as here:
        assert await here.asked("!memory") == memory.NOTHING
        await let_remember(here, FACT, "Ada lives in Köln", "Ada sings")
        listed = (await here.asked("!memory")).split("\n")
        assert listed[0] == memory.MINE
        assert [line.partition(" (")[0] for line in listed[1:4]] == [
            f"1. {FACT}",
            "2. Ada lives in Köln",
            "3. Ada sings",
        ]
        assert listed[-1] == memory.LASTS.format(days=30)
        assert await here.asked("!memory forget 1 2") == memory.FORGOTTEN.format(what="1, 2")
        assert await here.asked("!memory forget") == memory.WHICH_FACT
        for wrong in ("4", "0", "one", "1 x", "²", "9" * 30, "9" * 5_000):
            assert await here.asked(f"!memory forget {wrong}") == memory.UNKNOWN_FACT
        assert "\n3. Ada sings (" in await here.asked("!memory")
        assert await here.asked("!memory", author=BEN) == memory.NOTHING
        assert await here.asked("!memory forget all") == memory.ALL_FORGOTTEN
        assert await here.asked("!memory") == memory.NOTHING


async def test_reminder_made_from_a_fact_goes_with_the_fact() -> None:
    of_fact, of_mum = (
        tool_calls(("remind", {"text": words, "at": "2070-01-01T09:00Z"}))
        for words in (FACT, "Call mum")
    )
    async with story() as here:
        await let_remember(here, FACT)
        here.model.handler = script(recall(""), of_fact, text("I will."), of_mum, text("I will."))
        await here.asked("remind me of that")
        await here.asked("and to call mum")
        assert FACT in await here.asked("!reminders")
        await here.asked("!memory forget 1")
        left = await here.asked("!reminders")
        assert (FACT in left, "Call mum" in left) == (False, True)


async def test_export_holds_only_the_facts_of_the_chat() -> None:
    async with story(tools={"max_tool_calls": 50}) as here:
        for first in (1, 12, 23):
            await let_remember(here, *(f"fact {n} of Ada" for n in range(first, first + 11)))
        await let_remember(here, "a fact of Ben", author=BEN)
        listed = await here.asked("!memory")
        assert memory.OLDER.format(count=3) in listed
        assert "\n4. fact 4 of Ada" in listed
        assert "\n3. fact" not in listed
        answer = await here.answer_to("!memory export")
        assert answer.text == memory.EXPORTED.format(count=33)
        [file] = answer.attachments
        lines = file.data.decode().splitlines()
        assert len(lines) == 33
        assert lines[0].startswith("1. fact 1 of Ada (2")
        assert "Ben" not in file.data.decode()
        assert await here.asked("!memory export", **IN_GROUP) == memory.NOTHING


async def test_a_memory_that_is_off_is_neither_used_nor_added_to() -> None:
    async with story() as here:
        await let_remember(here, FACT)
        assert await here.asked("!memory off") == memory.SWITCHED_OFF
        here.model.handler = script(remember("more"), recall(), text("Off."))
        assert await here.asked("remember more") == "Off."
        assert "Memory is off" in here.told()
        assert REMEMBERED not in system_text(here.model.requests[-1])
        listed = await here.asked("!memory")
        assert FACT in listed
        assert listed.endswith(memory.IS_OFF)
        assert await here.asked("!memory on") == memory.SWITCHED_ON
        await here.asked("hello")
        assert FACT in system_text(here.model.requests[-1])


async def test_in_a_group_all_forget_single_facts_and_admins_all_of_them() -> None:
    async with story() as here:
        await let_remember(here, "The team sings", "The team runs", **IN_GROUP)
        listed = await here.asked("!memory", author=BEN, **IN_GROUP)
        assert listed.startswith(memory.OURS)
        for command in ("off", "on", "forget all"):
            assert await here.asked(f"!memory {command}", author=BEN, **IN_GROUP) == ONLY_ADMINS
        forgotten = await here.asked("!memory forget 1", author=BEN, **IN_GROUP)
        assert forgotten == memory.FORGOTTEN.format(what="1")
        here.signal.groups[GROUP].admins.add(BEN.aci)
        await here.signal.change_group(GROUP)
        all_gone = await here.asked("!memory forget all", author=BEN, **IN_GROUP)
        assert all_gone == memory.ALL_FORGOTTEN


async def test_memory_says_if_the_operator_has_switched_it_off() -> None:
    off = {"disabled": "remember"}
    async with world() as here:
        async with running_bot(here.settings()):
            await let_remember(here, FACT)
        async with running_bot(here.settings(tools=off)):
            listed = await here.asked("!memory")
            assert FACT in listed
            assert listed.endswith(memory.NOT_USED)
            assert await here.asked("!memory forget 1") == memory.FORGOTTEN.format(what="1")
        async with running_bot(here.settings(store={"retention_days": 0})):
            assert await here.asked("!memory") == memory.KEEPS_NOTHING


async def test_clear_names_remaining_data_and_how_to_delete_it() -> None:
    async with story() as here:
        await let_remember(here, FACT)
        await here.asked(f"!instructions {TONE}")
        answer = "Forgotten. We start afresh."
        cleared = await here.asked("!clear")
        assert cleared.split("\n") == [answer, STILL_REMEMBERED, INSTRUCTIONS_STAY]
        await here.asked("hello")
        assert FACT in system_text(here.model.requests[-1])
        await here.asked("!memory forget all")
        await here.asked("!instructions off")
        assert await here.asked("!clear") == answer
        assert facts_in(here) == []
        await gone_from_files(here, SECRET)


async def test_instructions_hold_for_their_chat_until_they_are_ended() -> None:
    async with story(bot={"system_prompt": "Be a bot."}) as here:
        assert await here.asked("!instructions") == f"{behaviour.NO_INSTRUCTIONS}\n{behaviour.HOW}"
        said = f"{TONE}.\n## Rules\nAnd [briefly]"
        answer = await here.asked(f"!instructions {said}")
        quoted = f"> {TONE}.\n> ## Rules\n> And [briefly]"
        assert answer == f"{behaviour.SET}\n{quoted}\n{behaviour.STAYS}"
        await here.asked("hello")
        shown = system_text(here.model.requests[-1])
        assert f"{INSTRUCTIONS}\n> {TONE}.\n> ## Rules\n> And (briefly)\n" in shown
        assert shown.startswith(f"Be a bot.\n\n{UNTRUSTED_GUIDELINE}")
        await here.asked("hello", author=BEN)
        assert TONE not in json.dumps(here.model.requests[-1])
        shown_again = await here.asked("!instructions")
        assert shown_again == f"{behaviour.SHOWN}\n{quoted}\n{behaviour.END}"
        too_long = await here.asked("!instructions " + "x" * 1_001)
        assert too_long == behaviour.TOO_LONG.format(most=1_000, count=1_001)
        assert await here.asked("!instructions OFF") == behaviour.INSTRUCTIONS_ENDED
        assert await here.asked("!instructions off") == behaviour.NO_INSTRUCTIONS
        await here.asked("hello")
        assert INSTRUCTIONS not in system_text(here.model.requests[-1])
        assert TONE.encode() not in files_of(here)


async def test_a_groups_instructions_are_its_admins_and_shown_to_it() -> None:
    async with story() as here:
        await here.asked("hello", **IN_GROUP)
        assert await here.asked(f"!instructions {TONE}", author=BEN, **IN_GROUP) == ONLY_ADMINS
        here.signal.groups[GROUP].admins.add(ADA.aci)
        await here.signal.change_group(GROUP)
        answer = await here.asked(f"!instructions {TONE}", **IN_GROUP)
        assert f"> {TONE}" in answer
        assert TONE in await here.asked("!instructions", author=BEN, **IN_GROUP)
        assert await here.asked("!instructions off", author=BEN, **IN_GROUP) == ONLY_ADMINS
        await here.asked("hello", author=BEN, **IN_GROUP)
        assert TONE in system_text(here.model.requests[-1])


async def test_instructions_go_with_their_message() -> None:
    async with story() as here:
        said = await here.signal.say(f"!instructions {TONE}")
        await here.answer()
        await here.signal.edit("!instructions Be formal", said)
        assert "> Be formal" in (await here.answer()).text
        await here.asked("hello")
        assert "> Be formal" in system_text(here.model.requests[-1])
        assert TONE.encode() not in files_of(here)
        await here.signal.delete(said)
        assert await here.asked("!instructions") == f"{behaviour.NO_INSTRUCTIONS}\n{behaviour.HOW}"
        vanishing = await here.asked(f"!instructions {TONE}", expires_seconds=1)
        assert vanishing.endswith(behaviour.DISAPPEARS)
        await gone_from_files(here, TONE)
        assert await here.asked("!instructions") == f"{behaviour.NO_INSTRUCTIONS}\n{behaviour.HOW}"
