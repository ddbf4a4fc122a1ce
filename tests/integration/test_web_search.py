"""`web_search`, from a model's call to its result, over HTTP to engines on loopback."""

import asyncio
import json
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from time import monotonic

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from tests.executing import an_executor, run_call
from tests.fakes import brave, duckduckgo
from tests.fakes.brave import KEY, Answer, BraveApi, brave_api, error
from tests.fakes.duckduckgo import DuckDuckGoPage, Page, duckduckgo_page
from tools.base import Caller, Tool, ToolRequest, ToolResult
from tools.catalog import open_tools
from tools.registry import Registry, probe
from tools.sandbox.errors import WorkError
from tools.sandbox.pool import Sandbox
from tools.schema import tool_from
from tools.settings import ToolsSettings, WebSearchSettings
from tools.web.search import (
    MAX_PAGE_BYTES,
    MAX_REMEMBERED,
    REMEMBERED_SECONDS,
    open_web_search,
)

REFUSED = "Brave refuses TOOLS__WEB_SEARCH__API_KEY."
HUMAN = (
    "DuckDuckGo asks whether a human is searching; try again later, or set up Brave "
    "(TOOLS__WEB_SEARCH__PROVIDER=brave)."
)
FREE_MONTH_LEFT = {
    "x_ratelimit_limit": "1, 2000",
    "x_ratelimit_remaining": "0, 1977",
    "x_ratelimit_reset": "1, 389223",
}
MONTH_WITHOUT_LIMIT = {
    "x_ratelimit_limit": "50, 0",
    "x_ratelimit_remaining": "0, 0",
    "x_ratelimit_reset": "1, 2678400",
}
MONTH_USED_UP = {
    "x_ratelimit_limit": "1, 2000",
    "x_ratelimit_remaining": "0, 0",
    "x_ratelimit_reset": "1, 864000",
}


class Clock:
    """Clock that a test moves."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


async def read_a_map() -> str:
    """Read a map."""
    return "North is up."


class Bot:
    """Tools of a model: the search and one more."""

    def __init__(self, search: Tool) -> None:
        self.search = search
        self.registry = Registry([search, tool_from(read_a_map)])
        self._executor = an_executor(self.registry)

    async def call(self, **arguments: object) -> ToolResult:
        request = ToolRequest("call_1", "web_search", json.dumps(arguments), Caller("someone"))
        return await run_call(self._executor, request)

    async def run(self, query: str) -> str:
        """Search without the executor, and so without its limit of calls."""
        result = await self.search.run(
            self.search.parse(json.dumps({"query": query})), Caller("someone")
        )
        assert isinstance(result, str)
        return result

    async def read(self, query: str = "night trains") -> str:
        """Return the results of a search, without the frame around strangers' words."""
        result = await self.call(query=query)
        assert result.outcome == "ok", result.content
        begin, *lines, end = result.content.splitlines()
        assert begin.startswith("[Untrusted content from web_search")
        assert end.startswith("[Untrusted content")
        return "\n".join(lines)

    async def complaint(self, query: str = "night trains") -> str:
        """Return why a search failed."""
        result = await self.call(query=query)
        assert result.outcome == "failed", result.content
        return result.content


@asynccontextmanager
async def a_bot_with_brave(
    api: BraveApi, *, key: str = KEY, max_results: int = 5, clock: Clock | None = None
) -> AsyncIterator[Bot]:
    settings = WebSearchSettings(api_key=SecretStr(key), url=api.url, max_results=max_results)
    async with open_web_search(settings, now=clock or monotonic) as search:
        yield Bot(search)


@asynccontextmanager
async def a_bot_with_duckduckgo(
    page: DuckDuckGoPage, *, max_results: int = 5
) -> AsyncIterator[Bot]:
    settings = WebSearchSettings(provider="duckduckgo", url=page.url, max_results=max_results)
    async with open_web_search(settings) as search:
        yield Bot(search)


# Brave ------------------------------------------------------------------------------------------


async def test_results_are_numbered_plain_and_safe_to_open() -> None:
    trains, hours = "https://trains.example/north?from=a&to=b", "It's 14 hours to the coast;"
    async with brave_api() as api, a_bot_with_brave(api) as bot:
        assert (await bot.read()).splitlines() == [
            f"[1] Night trains to the North & back: timetable — {trains} (3 days ago)",
            f"    All night trains at a glance. {hours} sleepers <2 beds> from €49 …",
            "[2] A diary of sleepers — https://diary.example/2024/ (2024-01-05)",
            "    What it is like on board.",
            "[3] untitled.example — https://untitled.example/",
            "[4] 夜行列車 txt.exe — https://例.example/夜行",
            "    北へ向かう。",
        ]


async def test_brave_is_asked_with_the_key_for_plain_web_results() -> None:
    async with brave_api() as api, a_bot_with_brave(api) as bot:
        await bot.read("  night   trains\n& more ")
        (request,) = api.requests
        assert request.headers["x-subscription-token"] == KEY
        assert request.headers["accept"] == "application/json"
        assert request.parameters == {
            "q": "night trains & more",
            "count": "5",
            "safesearch": "moderate",
            "text_decorations": "false",
            "result_filter": "web",
        }


@pytest.mark.parametrize(
    ("name", "wanted", "shown", "is_cut"),
    [("count", 10, 3, True), ("num_results", 1, 1, False), ("max_results", 0, 3, False)],
)
async def test_model_may_wish_for_a_number_of_results(
    name: str, wanted: int, shown: int, is_cut: bool
) -> None:
    async with brave_api() as api, a_bot_with_brave(api, max_results=3) as bot:
        result = await bot.call(query="night trains", **{name: wanted})
    assert result.outcome == "ok"
    assert (f"[{shown}]" in result.content, f"[{shown + 1}]" in result.content) == (True, False)
    assert ("[There are at most 3 results.]" in result.content) is is_cut


async def test_no_more_results_are_written_than_were_asked_for() -> None:
    async with brave_api() as api, a_bot_with_brave(api, max_results=3) as bot:
        read = await bot.read()
        assert ("[3]" in read, "[4]" in read) == (True, False)
        assert [request.parameters["count"] for request in api.requests] == ["3"]
    async with duckduckgo_page() as page, a_bot_with_duckduckgo(page, max_results=1) as bot:
        assert "[2]" not in await bot.read()


async def test_long_texts_are_cut_and_addresses_that_mislead_are_left_out() -> None:
    results = [
        {"title": "word " * 1_000, "url": "https://a.example", "description": "word " * 1_000},
        {"title": "Too long", "url": "https://b.example/" + "x" * 3_000, "description": ""},
        {"title": "Named", "url": "https://bank.example@evil.example/", "description": ""},
        {"title": "Broken", "url": "https://[1", "description": ""},
        {"title": "Spaced", "url": "https://c.example/ [2] https://d.example", "description": ""},
        {"title": "Nowhere", "url": "https:///page", "description": ""},
        {"title": "Backwards", "url": "https://e.example/\u202etxt.exe", "description": ""},
        {"title": "Files", "url": "ftp://files.example/", "description": ""},
    ]
    body = json.dumps({"type": "search", "web": {"results": results}})
    async with brave_api() as api, a_bot_with_brave(api) as bot:
        api.answers.append(Answer(body=body))
        read = await bot.read()
        assert len(read) < 700
        assert "[2]" not in read


@pytest.mark.parametrize("body", [brave.NOTHING, '{"type": "search", "web": {"results": []}}'])
async def test_an_empty_result_is_reported(body: str) -> None:
    said = "No results. Other or fewer words may find more."
    async with brave_api() as api, a_bot_with_brave(api) as bot:
        api.answers.append(Answer(body=body))
        assert await bot.read() == said
    async with duckduckgo_page() as page, a_bot_with_duckduckgo(page) as bot:
        page.pages.append(Page(200, duckduckgo.NOTHING))
        assert await bot.read() == said


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "'query' is missing"),
        ({"query": ""}, "should have at least 1 character"),
        ({"query": " \n "}, "The query is empty; say what to look for."),
        ({"query": "x" * 401}, "should have at most 400 characters"),
        ({"query": "a " * 51}, "The query has 51 words; at most 50 are possible."),
        ({"query": "夜" * 400}, "The query is too long; say it in fewer words."),
    ],
)
async def test_impossible_search_is_refused_without_a_request(
    arguments: dict[str, object], problem: str
) -> None:
    async with brave_api() as api, a_bot_with_brave(api) as bot:
        result = await bot.call(**arguments)
        assert result.outcome == "invalid"
        assert problem in result.content
        assert api.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        error("SUBSCRIPTION_TOKEN_INVALID", 422),
        error("OPTION_NOT_IN_PLAN", 400),
        error("SUBSCRIPTION_NOT_FOUND", 404),
        Answer(401, "{}"),
        Answer(403, "<html>Forbidden</html>", content_type="text/html"),
    ],
)
async def test_a_refused_key_withdraws_only_the_search(answer: Answer) -> None:
    async with brave_api() as api, a_bot_with_brave(api) as bot:
        api.answers.append(answer)
        assert await bot.complaint() == REFUSED
        assert [tool.name for tool in bot.registry.tools] == ["read_a_map"]
        assert bot.registry.absent == {"web_search": REFUSED}


@pytest.mark.parametrize(
    "answer", [Answer(), Answer(503, "no"), error("QUOTA_LIMITED", 429), error("VALIDATION", 422)]
)
async def test_search_with_an_accepted_key_stays(answer: Answer) -> None:
    async with brave_api() as api, a_bot_with_brave(api) as bot:
        api.answers.append(answer)
        await probe(bot.registry)
        assert bot.registry.absent == {}
        assert len(api.requests) == 1


async def test_searches_that_came_too_fast_are_made_again_one_each_second() -> None:
    async with brave_api() as api, a_bot_with_brave(api) as bot:
        api.answers += [
            Answer(),
            error("RATE_LIMITED", 429, **FREE_MONTH_LEFT),
            error("RATE_LIMITED", 429, **MONTH_WITHOUT_LIMIT),
        ]
        started = monotonic()
        async with asyncio.TaskGroup() as turn:
            calls = [turn.create_task(bot.read(query)) for query in ("one", "two", "three")]
        assert all(call.result().startswith("[1] Night trains") for call in calls)
        assert monotonic() - started >= 2
        assert len(api.requests) == 5


@pytest.mark.full
async def test_searches_that_would_wait_too_long_for_their_turn_are_refused() -> None:
    slow = {**FREE_MONTH_LEFT, "x_ratelimit_reset": "2, 389223"}
    async with brave_api() as api, a_bot_with_brave(api) as bot:
        api.answers += [error("RATE_LIMITED", 429, **slow)] * 4
        async with asyncio.TaskGroup() as turn:
            calls = [turn.create_task(bot.call(query=str(number))) for number in range(4)]
        first, *_, last = (call.result() for call in calls)
        assert first.outcome == "ok"
        assert last.content == "Too many searches at once; try again in a few seconds."
        assert max(call.result().duration_seconds for call in calls) < 5


async def test_second_rate_limit_tells_the_wait() -> None:
    async with brave_api() as api, a_bot_with_brave(api) as bot:
        api.answers += [error("RATE_LIMITED", 429, **FREE_MONTH_LEFT)] * 2
        assert await bot.complaint() == (
            "Brave allows no more searches this second; try again in a few seconds."
        )
        assert len(api.requests) == 2


async def test_a_used_up_month_is_said_with_its_end_if_that_can_be_read() -> None:
    unreadable = {
        "x_ratelimit_limit": "soon",
        "x_ratelimit_remaining": "",
        "x_ratelimit_reset": "later",
    }
    used_up = "The searches that Brave allows are used up"
    async with brave_api() as api, a_bot_with_brave(api) as bot:
        api.answers.append(error("RATE_LIMITED", 429, **MONTH_USED_UP))
        before = datetime.now(UTC) + timedelta(days=10)
        complaint = await bot.complaint()
        after = datetime.now(UTC) + timedelta(days=10)
        assert complaint in {
            f"{used_up} until {moment:%Y-%m-%d %H:%M} UTC." for moment in (before, after)
        }
        for headers in (unreadable, MONTH_WITHOUT_LIMIT):
            api.answers.append(error("QUOTA_LIMITED", 429, **headers))
            assert await bot.complaint() == f"{used_up}."
        assert len(api.requests) == 3
        assert bot.registry.absent == {}


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (Answer(402, "{}"), "Brave wants to be paid before it searches again."),
        (
            error("VALIDATION", 422),
            "Brave does not accept this query; put it differently.",
        ),
        (
            Answer(503, "<html>Service Unavailable</html>", content_type="text/html"),
            "Brave is failing right now (HTTP 503); try again later.",
        ),
        (Answer(418), "Brave answered with HTTP 418 instead of search results."),
        *(
            (Answer(body=body), "Brave answered with something else than search results.")
            for body in (
                "<html>Welcome</html>",
                brave.RESULTS[:500],
                "",
                "null",
                "[]",
                '{"results": []}',
                '{"type": "search", "web": []}',
                '{"type": "search", "web": {"results": "none"}}',
                "[" * 100_000,
                '{"type": "search", "query": "\\ud800"}',
            )
        ),
        (Answer(body=" " * 2**20), "The answer is larger than 524,288 bytes."),
    ],
)
async def test_every_other_answer_is_a_sentence(answer: Answer, complaint: str) -> None:
    async with brave_api() as api, a_bot_with_brave(api) as bot:
        api.answers.append(answer)
        assert await bot.complaint() == complaint
        assert (await bot.read()).startswith("[1]")
        assert bot.registry.absent == {}


async def test_the_same_search_is_made_once_in_ten_minutes() -> None:
    clock = Clock()
    async with brave_api() as api, a_bot_with_brave(api, clock=clock) as bot:
        first = await bot.read("night trains")
        clock.seconds = REMEMBERED_SECONDS - 1
        assert await bot.read(" night\ttrains ") == first
        assert len(api.requests) == 1
        clock.seconds = REMEMBERED_SECONDS
        await bot.read("night trains")
        assert len(api.requests) == 2


async def test_only_the_latest_searches_are_remembered() -> None:
    async with brave_api() as api, a_bot_with_brave(api) as bot:
        for number in range(MAX_REMEMBERED + 1):
            await bot.run(f"train {number}")
        await bot.run("train 1")
        assert len(api.requests) == MAX_REMEMBERED + 1
        await bot.run("train 0")
        assert api.requests[-1].parameters["q"] == "train 0"


async def test_the_key_never_follows_a_redirect() -> None:
    async with brave_api() as api, brave_api() as elsewhere, a_bot_with_brave(api) as bot:
        api.answers.append(Answer(302, headers={"Location": elsewhere.url}))
        assert "not on the public internet" in await bot.complaint()
        assert elsewhere.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        error("SUBSCRIPTION_TOKEN_INVALID", 422),
        Answer(401, json.dumps({"error": {"code": KEY, "detail": KEY}})),
        Answer(400, json.dumps({"error": {"code": KEY, "detail": KEY}})),
        Answer(500, KEY),
        Answer(200, KEY),
        Answer(200, json.dumps({"type": KEY})),
        error("QUOTA_LIMITED", 429),
    ],
)
async def test_the_key_is_in_no_text_that_this_program_writes(answer: Answer) -> None:
    async with brave_api() as api, a_bot_with_brave(api) as bot:
        api.answers += [answer, answer]
        with capture_logs() as logs:
            result = await bot.call(query="night trains")
            with pytest.raises(WorkError) as raised:
                await bot.run("night trains")
        settings = WebSearchSettings(api_key=SecretStr(KEY))
        written = (
            result,
            logs,
            settings,
            ToolsSettings(web_search=settings),
            bot.search,
            bot.registry.absent,
            traceback.format_exception(raised.value),
        )
        assert KEY not in repr(written)
        assert api.requests[0].headers["x-subscription-token"] == KEY


async def test_an_address_that_can_never_be_asked_makes_the_search_absent() -> None:
    settings = WebSearchSettings(api_key=SecretStr(KEY), url="http://name:password@search.example")
    async with open_tools(ToolsSettings(web_search=settings)) as registry:
        reason = registry.absent["web_search"]
        assert reason.startswith("TOOLS__WEB_SEARCH__URL cannot be asked: ")
        assert "password@" not in reason


# DuckDuckGo -------------------------------------------------------------------------------------


async def test_duckduckgos_page_is_read_as_results() -> None:
    trains = "https://trains.example/north?from=a%26b&to=C%2B%2B"
    async with duckduckgo_page() as page, a_bot_with_duckduckgo(page) as bot:
        assert (await bot.read()).splitlines() == [
            f"[1] Night trains to the North & back — {trains}",
            "    All night trains at a glance: vector<train> 'North'.",
            "[2] Ночные поезда: an anomaly, and a captcha — https://diary.example/2024",
            "    What it is like on board.",
        ]
        (request,) = page.requests
        assert request.form == {"q": "night trains", "b": "", "l": "wt-wt"}
        assert request.headers["user-agent"].startswith("Mozilla/5.0 ")


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (Page(202, duckduckgo.CHALLENGE), HUMAN),
        (Page(200, duckduckgo.CHALLENGE), HUMAN),
        (Page(202, ""), HUMAN),
        (Page(403, "Forbidden"), HUMAN),
        (Page(429, ""), HUMAN),
        (Page(500, duckduckgo.RESULTS), "DuckDuckGo is failing right now (HTTP 500)."),
        *(
            (Page(200, body), "DuckDuckGo answered with something else than search results.")
            for body in (
                "",
                "\0\1\2",
                "<!-- -->",
                "<?xml version='1.0' encoding='utf-8'?><a/>",
                "<html><body><p>A new design</p></body></html>",
                "<div class=body>" * 30_000,
                "<div class=body><a href='http://[1'>x</a></div>",
            )
        ),
        (Page(200, " " * (MAX_PAGE_BYTES + 1)), "The answer is larger than 524,288 bytes."),
    ],
)
async def test_every_other_page_is_a_sentence(answer: Page, complaint: str) -> None:
    async with duckduckgo_page() as page, a_bot_with_duckduckgo(page) as bot:
        page.pages.append(answer)
        assert await bot.complaint() == complaint


@pytest.mark.parametrize("reply", ["", "null", "[0]", '[{"title": "a"}]', "[" + "[]," * 80_000])
async def test_results_that_no_worker_makes_are_refused(
    monkeypatch: pytest.MonkeyPatch, reply: str
) -> None:
    async def call(_: Sandbox, __: str) -> str:
        return reply

    monkeypatch.setattr(Sandbox, "call", call)
    async with duckduckgo_page() as page, a_bot_with_duckduckgo(page) as bot:
        page.pages.append(Page(200, duckduckgo.RESULTS))
        assert await bot.complaint() == "The search results cannot be read."


@pytest.mark.parametrize(
    "page", [Page(202), Page(200, duckduckgo.RESULTS + "<p>" + "поезд " * 40_000 + "</p>")]
)
async def test_results_with_an_odd_status_or_much_around_them_are_results(page: Page) -> None:
    async with duckduckgo_page() as server, a_bot_with_duckduckgo(server) as bot:
        server.pages.append(page)
        assert (await bot.read()).startswith("[1] Night trains")


async def test_a_page_made_to_take_forever_is_stopped_and_the_next_one_is_read() -> None:
    async with duckduckgo_page() as page, a_bot_with_duckduckgo(page) as bot:
        page.pages.append(Page(200, "<div class=body>" * 250 + "<h2>x</h2>" * 40_000))
        result = await bot.call(query="night trains")
        assert result.outcome == "timeout"
        assert result.duration_seconds < 5
        assert (await bot.read()).startswith("[1] Night trains")


def test_package_of_duckduckgo_is_loaded_on_demand_and_may_be_missing() -> None:
    program = """
import asyncio, sys
import tools.web.search
assert "ddgs" not in sys.modules
sys.modules["ddgs"] = None  # as if it were not installed
from tools.catalog import open_tools
from tools.settings import ToolsSettings, WebSearchSettings

async def main():
    search = WebSearchSettings(provider="duckduckgo")
    async with open_tools(ToolsSettings(web_search=search)) as registry:
        print(registry.absent["web_search"])

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    reason = "The package ddgs is not installed: pip install 'signal-tee-bot[duckduckgo]'."
    assert done.stdout.splitlines()[-1] == reason
