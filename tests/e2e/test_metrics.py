"""Metrics of a bot that people talk to."""

import asyncio
import re
import signal
import time
from pathlib import Path
from typing import Final

import pytest

from bot import __version__
from bot.llm.models import UNPROVEN
from bot.observability import metrics
from bot.signal.events import Person
from conversation_store.store import open_store
from tests.e2e.daemon_process import daemon, environment
from tests.e2e.proving_world import proving_world
from tests.e2e.running_bot import WAIT_SECONDS, world
from tests.e2e.scraped import ANY_PORT, bot_with_health, get, readiness, scrape
from tests.exposition import Exposition
from tests.fakes.json_rpc_server import Refusal
from tests.fakes.openai_server import held, script, status, text, tool_calls
from tests.fakes.signal_side import ADA, BOT, Sent

BEN: Final = Person(
    aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Bartholomew"
)
GROUP: Final = "c2VzYW1lc2VzYW1lc2VzYW1lc2VzYW1lc2VzYW1lc2U="
WORD: Final = "sesame"
POLL_SECONDS: Final = 0.02


async def until(port: int, name: str, *values: float, **labels: str) -> Exposition:
    """Scrape until a series has this value, or any but zero."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            seen = await scrape(port)
            value = seen.value(name, **labels)
            if value in values or (value and not values):
                return seen
            await asyncio.sleep(POLL_SECONDS)


@pytest.mark.long
async def test_a_conversation_and_its_failures_are_measured() -> None:
    steps = script(tool_calls(("calculate", {"expression": "127*43"})), text("5461"))
    async with world(steps) as here:
        settings = environment(here, HEALTH__LISTEN=ANY_PORT)
        async with daemon(settings, folder=here.folder) as bot:
            port = await bot.port()
            await bot.event("signal.connected")
            first = await scrape(port)
            await here.signal.say("What is 127*43?")
            await here.answer()
            await here.signal.say("!help")
            await here.answer()
            await until(port, "answer_seconds_count", 1, kind="command")
            seen = await until(port, "unsent_messages", 0)
            await until(port, "event_loop_lag_seconds_count")

            here.model.handler = status(401)
            await here.signal.say("hello")
            await here.answer()

            async def refuse(_: Sent) -> None:
                raise Refusal(-32603, "Failed to send message")

            here.signal.on_send = refuse
            await here.signal.say("hello again")
            await bot.event("outbox.will_retry")
            failed = await scrape(port)
    assert failed.value("unsent_messages") == 1
    assert failed.value("turns_total", outcome="failed") == 2
    assert failed.value("llm_requests_total", asked_for="answer", outcome="unauthorized") == 2
    assert failed.value("signal_sends_total", outcome="unclear") == 1
    assert seen.value("build_info", version=__version__, commit="unknown") == 1
    assert seen.value("signal_connected") == seen.value("store_writable") == 1
    for name, labels, times in (
        ("signal_frames_total", {"kind": "message"}, 2),
        ("received_messages_total", {"fate": "accepted"}, 2),
        ("first_sign_seconds_count", {}, 2),
        ("answer_seconds_count", {"kind": "conversation"}, 1),
        ("turns_total", {"outcome": "answered"}, 1),
        ("turn_rounds_sum", {}, 1),
        ("llm_requests_total", {"asked_for": "answer", "outcome": "ok"}, 2),
        ("llm_request_duration_seconds_count", {"asked_for": "answer"}, 2),
        ("llm_first_byte_seconds_count", {}, 2),
        ("tool_calls_total", {"tool": "calculate", "outcome": "ok"}, 1),
        ("tool_duration_seconds_count", {"tool": "calculate"}, 1),
    ):
        assert seen.value(name, **labels) == times, name
    assert seen.value("llm_tokens_total", kind="prompt") > 0
    assert seen.value("signal_sends_total", outcome="sent") >= 3
    assert seen.value("signal_send_duration_seconds_count") >= 3
    assert seen.value("store_commit_writes_sum") >= seen.value("store_commit_writes_count") > 0
    assert seen.value("store_commit_duration_seconds_count") > first.value(
        "store_commit_duration_seconds_count"
    )
    assert seen.value("unanswered_messages") == 0
    assert seen.value("oldest_unanswered_message_seconds") == 0
    assert seen.value("store_bytes", part="file") > 0
    assert seen.value("store_bytes", part="log") > 0
    assert seen.value("store_disk_free_bytes") > 0
    assert seen.value("tasks") > 0


async def test_waiting_messages_are_visible() -> None:
    may_answer = asyncio.Event()
    async with world(held(may_answer)) as here:
        settings = here.settings(health={"listen": ANY_PORT}, llm={"max_concurrency": 1})
        async with bot_with_health(settings) as port:
            await here.signal.say("one")
            await here.model.wait_for_requests(1)
            await here.signal.say("two", author=BEN)
            await until(port, "llm_requests_waiting", 1)
            await here.signal.say("!plan", author=BEN)
            await until(port, "waiting_jobs", 1, lane="ordinary")
            seen = await until(port, "unanswered_messages", 3)
            assert seen.value("running_turns") == 2
            assert 0 < seen.value("oldest_unanswered_message_seconds") < WAIT_SECONDS
            may_answer.set()
            for _ in range(3):
                await here.answer()
            seen = await until(port, "unanswered_messages", 0)
            assert seen.value("waiting_jobs", lane="ordinary") == 0
            assert seen.value("llm_requests_waiting") == 0
            before = seen.value("received_messages_total", fate="urgent")
            await here.signal.say("!stop")
            await here.answer()
            await until(port, "received_messages_total", before + 1, fate="urgent")


async def test_other_metrics_come_without_the_size_of_the_store(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "disk", tmp_path / "elsewhere"
    async with open_store(folder / "store.db") as store:
        folder.rename(elsewhere)
        exposition = (await metrics.measured(store)).decode()
        elsewhere.rename(folder)
    assert "signal_tee_bot_tasks" in exposition


async def test_metrics_and_readiness_reveal_no_person() -> None:
    async with world(text(f"{WORD} **and** `code`")) as here:
        settings = environment(
            here,
            HEALTH__LISTEN=ANY_PORT,
            ACCESS__POLICY="allowlist",
            ACCESS__ALLOWED=ADA.aci,
            ACCESS__ADMINS=ADA.aci,
            BOT__ACK_REACTION="true",
        )
        async with daemon(settings, folder=here.folder) as bot:
            port = await bot.port()
            await bot.event("signal.connected")
            await here.signal.change_group(GROUP, members=[ADA, BEN], admins=[ADA.aci])
            await here.signal.say(f"{WORD} one", author=BEN)
            asked = await here.signal.say(f"{WORD} two")
            await here.answer()
            await here.signal.edit(f"{WORD} three", asked)
            await here.signal.wait_for(lambda sent: sent.replaces is not None)
            await here.signal.delete(asked)
            here.model.handler = script(
                tool_calls(
                    (WORD, {WORD: WORD}), ("web_fetch", {"url": f"http://127.0.0.1:1/{WORD}"})
                ),
                text(WORD),
            )
            await here.signal.say(f"{WORD} four", group=GROUP, mention=True)
            await here.signal.wait_for(lambda sent: sent.chat.is_group and sent.text == WORD)
            await here.signal.say(f"!{WORD}")
            await here.signal.wait_for(lambda sent: "!help" in sent.text)
            _, ready = await get(port, "/readyz")
            seen = await scrape(port)
            bot.send_signal(signal.SIGTERM)
            await bot.exit_code()
    assert seen.value("received_messages_total", fate="not_admitted") == 1
    assert seen.value("received_messages_total", fate="edit") == 1
    assert seen.value("tool_calls_total", tool="unknown", outcome="unknown") == 1
    people = [part for person in (ADA, BEN, BOT) for part in (person.aci, person.number)]
    secrets = [str(part).removeprefix("+") for part in (*people, ADA.name, BEN.name)]
    for secret in (*secrets, WORD, GROUP, str(asked), str(here.folder)):
        assert secret not in seen.text
        assert secret not in ready.decode()
    # No label looks like a phone number or an id.
    values = {
        value for label in seen.labels().values() for known in label.values() for value in known
    }
    assert not [value for value in values if re.search(r"\d{7}|[0-9a-f]{8}-", value)]


async def test_a_model_that_must_be_proven_and_is_not_makes_the_bot_unready() -> None:
    async with proving_world() as proving:
        give_report, may_prove = proving.cloud.give_report, asyncio.Event()
        settings = proving.settings("require", health={"listen": ANY_PORT})
        proving.cloud.report_handler = held(may_prove, give_report)
        async with bot_with_health(settings, trust=proving.trust) as port:
            assert (await readiness(port))["llm"] == (False, UNPROVEN)
            seen = await scrape(port)
            assert seen.value("model_proof_required") == seen.value("in_tee") == 1
            assert seen.value("model_verified_until_timestamp_seconds") == 0
            may_prove.set()
            await proving.here.signal.say("hello")
            await proving.here.answer()
            assert (await readiness(port))["llm"] == (True, "The endpoint answers.")
            seen = await scrape(port)
            assert seen.value("model_verified_until_timestamp_seconds") > time.time()
            before = seen.value("own_proofs_total", outcome="passed")
            await proving.here.signal.say("!verify")
            await proving.here.answer()
            await until(port, "own_proofs_total", before + 1, outcome="passed")
            await until(port, "waiting_signatures", 0)
