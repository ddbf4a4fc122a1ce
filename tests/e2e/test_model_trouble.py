"""An unreachable model: the words for people, the operator and the log."""

import time
from typing import Final

import pytest

from tests.e2e.daemon_process import daemon, environment, run_command
from tests.e2e.running_bot import story, world
from tests.fakes.openai_server import Step, echo, status
from tests.fakes.signal_side import ADA

NOBODY: Final = "http://127.0.0.1:9/v1"
SAID_WITHIN_SECONDS: Final = 30.0
WAIT_SAID_AFTER_SECONDS: Final = 20.0
STILL_TRYING: Final = {
    "en": "🔧 The model does not answer yet. Still trying…",
    "de": "🔧 Das Modell antwortet noch nicht. Ich versuche es weiter…",
}
TOOK_LONG: Final = {
    "en": "🔧 The model took longer than usual.",
    "de": "🔧 Das Modell hat länger gebraucht als sonst.",
}
SECRETS: Final = ("frobnicate", "sk-sesame", ADA.aci)


async def test_a_wrong_address_is_said_within_seconds_to_people_log_and_admins() -> None:
    async with world() as here:
        settings = environment(
            here, LLM__BASE_URL=NOBODY, LLM__API_KEY="sk-sesame", ACCESS__ADMINS=ADA.aci
        )
        async with daemon(settings, folder=here.folder) as bot:
            began = time.monotonic()
            answer = await here.asked("frobnicate")
            assert time.monotonic() - began < SAID_WITHIN_SECONDS
            status_said = await here.asked("!status")
            logged = bot.events("llm.failed")[-1]
            log = "\n".join(bot.stderr)
    assert answer == "I cannot reach my model. Please tell the operator of this bot."
    reason = "It refuses connections. Is the server running there? See LLM__BASE_URL."
    assert (logged["host"], logged["reason"]) == ("127.0.0.1:9", reason)
    assert f"\nEndpoint of the model default: 127.0.0.1:9: {reason}\n" in status_said
    assert len(here.answers()) == 2
    assert not any(secret in log for secret in SECRETS)


@pytest.mark.full
async def test_others_than_admins_hear_nothing_of_the_endpoint() -> None:
    async with story(llm={"base_url": NOBODY}) as here:
        answer = await here.asked("hello")
        said = await here.asked("!status")
    assert "127.0.0.1" not in answer + said


@pytest.mark.long
@pytest.mark.full
@pytest.mark.parametrize(
    ("away", "language"), [(False, "de"), (True, "en")], ids=["busy", "restarting"]
)
async def test_a_long_wait_is_announced_once_in_the_persons_language(
    *, away: bool, language: str
) -> None:
    async with world() as here, daemon(environment(here), folder=here.folder):
        await here.asked(f"!language {language}")
        await here.asked("one")
        if away:
            await here.model.stop()
        else:
            here.model.handler = status(429)
        began = time.monotonic()
        await here.signal.say("two")
        said = await here.signal.next_sent(seconds=2 * WAIT_SAID_AFTER_SECONDS)
        assert said.text == STILL_TRYING[language]
        assert time.monotonic() - began > WAIT_SAID_AFTER_SECONDS / 2
        if away:
            await here.model.start()
        here.model.handler = echo
        await here.answer()
    _, first, waiting, took_long, second = [sent.text for sent in here.signal.sent]
    assert first.endswith("one")
    assert waiting == STILL_TRYING[language]
    assert took_long == TOOK_LONG[language]
    assert second.endswith("two")


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (status(404), "It has no model under this address."),
        pytest.param(None, "127.0.0.1:9: It refuses connections.", marks=pytest.mark.full),
    ],
)
async def test_in_the_demo_the_reason_is_shown(step: Step | None, reason: str) -> None:
    async with world(step or echo) as here:
        url = here.model.base_url if step else NOBODY
        arguments, settings = ["demo", "--say", "hello"], {"LLM__BASE_URL": url}
        _, out, _ = await run_command(arguments, settings, folder=here.folder)
    shown = " ".join(out.replace("│", " ").split())
    assert "The model gave no answer. 127.0.0.1:" in shown or step is None
    assert reason in shown
