"""Access to the bot, and the behaviour of commands."""

import asyncio

import pytest

from tests.e2e.running_bot import running_bot, story, world
from tests.e2e.test_conversation import BEN
from tests.fakes.openai_server import held, models, script, text
from tests.fakes.signal_side import ADA

GROUP = "Z3JvdXA="


async def test_empty_allowlist_answers_no_messages() -> None:
    async with world() as here:
        async with running_bot(here.settings(access={"policy": "allowlist"})):
            await here.signal.until(lambda: here.signal.subscribed)
            await here.signal.say("hello")
            await here.signal.say("!help")
        assert here.signal.sent == []
        assert b"hello" not in (here.folder / "store.db").read_bytes()


@pytest.mark.parametrize("who", [ADA.number, ADA.aci.upper()])
async def test_the_allowlist_knows_people_by_number_or_aci(who: str) -> None:
    async with world() as here:
        access = {"policy": "allowlist", "allowed": who}
        async with running_bot(here.settings(access=access)):
            await here.signal.say("not you", author=BEN)
            assert (await here.asked("you")).endswith("you")
    assert len(here.signal.sent) == 1


async def test_group_messages_are_answered_only_if_they_address_the_bot() -> None:
    async with story() as here:
        await here.signal.say("not for the bot", group=GROUP)
        first = await here.answer_to("for the bot", group=GROUP, mention=True)
        second = await here.answer_to("a reply to it", group=GROUP, quote=first.timestamp)
    assert first.text.endswith("for the bot")
    assert second.text.endswith("a reply to it")
    assert str(first.chat) == f"group:{GROUP}"


@pytest.mark.parametrize(("policy", "mention", "answers"), [("always", False, 1), ("off", True, 0)])
async def test_groups_can_be_answered_always_or_never(
    policy: str, mention: bool, answers: int
) -> None:
    async with story(access={"groups": policy}) as here:
        await here.signal.say("hi all", group=GROUP, mention=mention)
        await here.signal.say("private")
        await here.signal.wait_for(lambda sent: sent.text.endswith("private"))
    assert len(here.signal.sent) == answers + 1


async def test_fast_writer_gets_one_notice_and_then_silence() -> None:
    async with story(access={"messages_per_minute": 2}) as here:
        for number in range(5):
            await here.signal.say(f"!m{number}")
        await here.signal.say("ben", author=BEN)
        await here.signal.until(lambda: len(here.signal.sent) == 4)
    mine = [sent.text for sent in here.signal.sent if sent.chat.value == ADA.aci]
    assert len(mine) == 3
    assert sum("faster than I can answer" in text for text in mine) == 1


async def test_fast_writer_can_stop_a_turn() -> None:
    never = asyncio.Event()
    async with story(script(held(never)), access={"messages_per_minute": 1}) as here:
        await here.let_think("a long story, please")
        assert (await here.asked("!stop")).startswith("Stopped.")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("!help", "!clear: forget this conversation"),
        ("  !HELP  ", "!stop"),
        ("!tools", "calculate"),
        ("!status", "Model: fake"),
        ("!HELP\nplease", "!stop"),
        ("!verify my-challenge", "does not run in a trusted execution environment"),
        ("!nonsense", "!help"),
        ("!stop", "nothing to stop"),
    ],
)
async def test_a_command_is_answered_without_the_model(command: str, words: str) -> None:
    async with story() as here:
        assert words in await here.asked(command)
    assert here.model.requests == []


async def test_help_lists_admin_commands_only_to_admins_in_private() -> None:
    access = {"policy": "pairing", "admins": BEN.aci, "allowed": ADA.aci}
    async with story(access=access) as here:
        assert "!pair: let a person in" in await here.asked("!help", author=BEN)
        in_group = await here.asked("!help", author=BEN, group=GROUP, mention=True)
        to_ada = await here.asked("!help", author=ADA)
    assert in_group == to_ada
    assert "!verify" in to_ada
    assert "!pair" not in to_ada
    assert "!trust" not in to_ada


@pytest.mark.parametrize("words", ["!", "!!!", "!5", "help !help", "!?", "hey!help"])
async def test_text_that_resembles_a_command_is_conversation(words: str) -> None:
    async with story() as here:
        assert (await here.asked(words)).endswith(words)


async def test_models_are_listed_with_the_one_that_answers() -> None:
    async with story() as here:
        here.model.models_handler = models("fake", "other")
        lines = (await here.asked("!models")).splitlines()
    assert lines == ["• fake ← answers here", "• other"]


async def test_clear_makes_the_model_forget() -> None:
    async with story(script(text("one"), text("two"))) as here:
        await here.asked("remember this")
        assert "Forgotten" in await here.asked("!clear")
        await here.asked("what did I say?")
    assert len(here.model.requests[1]["messages"]) == 2
