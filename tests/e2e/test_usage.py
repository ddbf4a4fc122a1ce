"""Tokens count for the person who asked, and a daily budget limits them."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass

from bot.chat.access import Access, TokenBudget
from bot.config.settings import AccessSettings
from bot.signal.events import Person
from tests.e2e.daemon_process import daemon, environment
from tests.e2e.minds import Minds, delegating
from tests.e2e.running_bot import running_bot, story, world
from tests.e2e.test_approvals import WRITE, notes, with_notes
from tests.fakes.openai_server import openai_server, text, tool_calls
from tests.fakes.scripted_http import Step, held, script, whole
from tests.fakes.signal_side import ADA, Group

BEN = Person("33333333-3333-4333-8333-333333333333", "+15550100003", "Ben")
TEAM = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
STOPPED = (
    "I had to stop before I was done: you have used up your tokens for today."
    r" Ask me again after 00:00 UTC, in (\d+ h )?\d+ min\."
)
SUM = ("calculate", {"expression": "6*7"})


def rules(tokens_per_day: int) -> AccessSettings:
    return AccessSettings(
        policy="open",
        allowed=frozenset(),
        admins=frozenset(),
        groups="mention",
        messages_per_minute=20,
        tokens_per_day=tokens_per_day,
    )


@dataclass
class Spent:
    today: int

    async def spent_today(self, _: str) -> int:
        return self.today


def counting(words: str, prompt: int, completion: int) -> Step:
    """Answer with a count of tokens."""
    choice = {"index": 0, "message": {"content": words}, "finish_reason": "stop"}
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    return whole({"id": "1", "choices": [choice], "usage": usage})


def budget(tokens: int, **more: object) -> Mapping[str, object]:
    return {"tokens_per_day": tokens, **more}


async def test_usage_shows_the_tokens_of_each_person() -> None:
    async with world() as here:
        async with running_bot(here.settings()):
            here.model.handler = counting("Hi.", 34, 1_200)
            await here.asked("hello")
            await here.asked("hello again")
            await here.asked("hello", author=BEN)
            assert await here.asked("!usage") == "Today: 2,468 tokens.\nIn 30 days: 2,468 tokens."
        async with running_bot(here.settings()):
            said = await here.asked("!usage", author=BEN)
    assert said == "Today: 1,234 tokens.\nIn 30 days: 1,234 tokens."


async def test_every_request_of_a_turn_counts_those_of_cut_answers_too() -> None:
    async with story() as here:
        here.model.handler = script(
            tool_calls(SUM), text("It is for", finish_reason="length"), then=text("forty-two.")
        )
        await here.asked("what is 6*7?")
        each = 11 + 7
        assert len(here.model.requests) == 3
        assert f"Today: {3 * each} tokens." in await here.asked("!usage")


async def test_models_are_told_apart_and_admins_hear_the_sum() -> None:
    async with world() as here, openai_server(counting("I am the second.", 90, 10)) as other:
        further = {"second": {"base_url": other.base_url, "model": "other"}}
        settings = here.settings(llm={"models": further}, access={"admins": BEN.aci})
        async with running_bot(settings):
            here.model.handler = counting("Hi.", 10, 5)
            await here.asked("hello")
            await here.asked("!model second")
            await here.asked("hello")
            said = await here.asked("!usage")
            sum_said = await here.asked("!usage", author=BEN)
    assert said.endswith("In 30 days: 115 tokens.\n• default: 15\n• second: 100")
    assert sum_said.endswith("\nEverybody together (1): 115 tokens today, 115 in 30 days.")


async def test_used_up_budget_names_the_wait_and_allows_commands() -> None:
    async with world() as here:
        async with running_bot(here.settings(access=budget(1_000))):
            here.model.handler = counting("Hi.", 60, 840)
            assert await here.asked("one") == "Hi."
            assert "\n100 of 1,000 are left for today." in await here.asked("!usage")
            assert await here.asked("two") == "Hi."  # begun below the bound, and answered whole
            assert re.fullmatch(
                "You have used up your tokens for today. I answer you again after 00:00 UTC,"
                r" in (\d+ h )?\d+ min\.",
                await here.asked("three"),
            )
            await here.signal.say("four")  # it is said once
            assert "\n0 of 1,000 are left for today." in await here.asked("!usage")
            assert await here.asked("hello", author=BEN) == "Hi."
        assert len(here.model.requests) == 3
        assert sum("used up" in answer for answer in here.answers()) == 1
        async with running_bot(here.settings(access=budget(1_000, admins=ADA.aci))):
            assert await here.asked("an admin has no bound") == "Hi."


async def test_a_question_of_the_bot_is_still_answered_when_the_day_is_used_up() -> None:
    async with world(script(tool_calls(WRITE), then=text("Hi."))) as here:
        here.signal.groups[TEAM] = Group(members={ADA.aci: ADA})
        async with running_bot(with_notes(here, access=budget(20))):
            assert (await here.asked("note: buy milk")).startswith("❓")
            assert await here.asked("hello", group=TEAM, mention=True) == "Hi."
            assert re.fullmatch(STOPPED, await here.asked("yes"))
            await here.signal.say("and eggs")  # it has been said today
            assert "\n0 of 20 are left for today." in await here.asked("!usage")
        assert notes(here).count("buy milk") == 1
        assert len(here.model.requests) == 2


async def test_a_turn_asks_no_model_any_more_once_the_day_is_used_up() -> None:
    async with story(script(tool_calls(SUM), then=tool_calls(SUM)), access=budget(50)) as here:
        assert re.fullmatch(STOPPED, await here.asked("what is 6*7?"))
        assert "\n0 of 50 are left for today." in await here.asked("!usage")
    assert len(here.model.requests) == 3  # the third began with 14 tokens left


async def test_calls_of_the_last_request_are_not_run() -> None:
    async with story(tool_calls(WRITE), with_notes, access=budget(1)) as here:
        assert re.fullmatch(STOPPED, await here.asked("note: buy milk"))
        assert notes(here) == ""


async def test_helpers_use_the_budget_of_their_person() -> None:
    tasks = ["add", "count", "look"]
    minds = Minds(
        tool_calls(*map(delegating, tasks)),
        helpers={task: [tool_calls(SUM)] * 9 for task in tasks},
    )
    async with story(minds, access=budget(80)) as here:
        assert re.fullmatch(STOPPED, await here.asked("Please help"))
        assert "0 of 80 are left" in await here.asked("!usage")
    assert len(minds.asked_by_turns) == 1
    assert 3 < len(minds.asked_by_helpers) <= 6  # each may have a request on its way at the end


async def test_a_restart_gives_a_turn_and_its_helpers_nothing_back() -> None:
    never = asyncio.Event()
    minds = Minds(
        tool_calls(delegating("add")),
        helpers={"add": [tool_calls(SUM), held(never, text("Late.")), tool_calls(SUM)]},
    )
    async with world(minds) as here:
        settings = environment(here, ACCESS__TOKENS_PER_DAY="40")
        async with daemon(settings, folder=here.folder) as bot:
            await here.signal.say("Please help")
            await minds.until(helpers=2)
            await bot.killed()
        async with daemon(settings, folder=here.folder):
            assert re.fullmatch(STOPPED, (await here.answer()).text)
    assert len(minds.asked_by_turns) == 1
    assert len(minds.asked_by_helpers) == 3  # 36 tokens were stored: one more request


async def test_a_raised_budget_applies_at_once_and_its_end_is_announced() -> None:
    access, spent = Access(rules(10)), Spent(today=10)
    budget = TokenBudget(access, spent.spent_today, clock=lambda: 86_400.0 * 20_000)
    assert "in 24 h 0 min" in (await budget.refusal(ADA) or "")
    assert await budget.refusal(ADA) == ""
    access.settings = rules(20)
    assert await budget.refusal(ADA) is None
    spent.today = 20
    assert "used up" in (await budget.refusal(ADA) or "")


async def test_group_question_uses_the_budget_of_its_asker() -> None:
    async with world() as here:
        here.signal.groups[TEAM] = Group(members={ADA.aci: ADA, BEN.aci: BEN})
        async with running_bot(here.settings(access=budget(1_000))):
            here.model.handler = counting("Hi.", 60, 940)
            await here.asked("hello", author=ADA, group=TEAM, mention=True)
            assert await here.asked("hello", author=BEN) == "Hi."
            assert "used up" in await here.asked("hello", author=ADA)


async def test_tokens_of_a_stopped_turn_count() -> None:
    never = asyncio.Event()
    async with story() as here:
        here.model.handler = script(tool_calls(SUM), then=held(never, text("Too late.")))
        await here.let_think("what is 6*7?", requests=2)
        await here.asked("!stop")
        used = await here.asked("!usage")
    assert int(used.partition("Today: ")[2].split()[0].replace(",", "")) > 18
    assert "estimate" in used  # of the request that was cancelled
