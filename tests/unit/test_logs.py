"""Contents of log lines."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
import structlog

from bot.observability import logs

NUMBER: Final = "+4915200000002"
ACI: Final = "0d1e2f30-0000-4000-8000-00000000000b"
WORD: Final = "sesame"


@contextmanager
def logged(level: str = "debug") -> Iterator[list[dict[str, Any]]]:
    """Log as the daemon does inside the block; its lines are there behind it."""
    lines: list[dict[str, Any]] = []
    root, before = logging.getLogger(), (logging.getLogger().handlers[:], logging.getLogger().level)
    stderr, sys.stderr = sys.stderr, io.StringIO()
    logs.configure(level=level, log_format="json")
    try:
        yield lines
    finally:
        said, sys.stderr = sys.stderr.getvalue(), stderr
        structlog.reset_defaults()
        root.handlers[:], root.level = before
        lines.extend(json.loads(line) for line in said.splitlines())


def test_exception_in_a_group_is_logged_by_kind_and_places_without_its_words() -> None:
    def stumble() -> None:
        raise KeyError("direct:ada")

    with logged() as lines:
        try:
            stumble()
        except KeyError as error:
            group = ExceptionGroup("several", [ExceptionGroup("deeper", [error])])
            structlog.get_logger().error("app.bug", exc_info=group)
    [said] = lines
    assert (said["event"], said["level"], said["error"]) == ("app.bug", "error", "KeyError")
    assert said["where"][-1].startswith("stumble:")
    assert "ada" not in json.dumps(said)


@pytest.mark.parametrize(
    "value",
    [
        NUMBER,
        f"direct:{ACI}",
        ACI.upper(),
        "0d1e2f30-0a0b-4c0d-8e0f-00a1b2c3d4e5",
        "c2VzYW1lc2VzYW1lc2VzYW1lc2VzYW1lc2VzYW1lc2U=",
        "12345 6789012 345",
        "long " * 100,
        {"text": WORD},
        WORD.encode(),
        object(),
    ],
)
def test_a_value_that_may_identify_a_person_is_withheld_under_any_key(value: object) -> None:
    with logged() as lines:
        structlog.get_logger().info("turn.failed", reason=value, where=[value, "think:12"])
    [said] = lines
    assert said["reason"] == logs.WITHHELD
    assert said["where"] in ([logs.WITHHELD, "think:12"], logs.WITHHELD)


@pytest.mark.parametrize("event", [f"{WORD} came", WORD, "", f"turn.{ACI}"])
def test_an_event_that_is_no_dotted_name_is_withheld(event: str) -> None:
    with logged() as lines:
        structlog.get_logger().info(event)
    [said] = lines
    assert said["event"] == logs.WITHHELD


def test_plain_values_and_sentences_stay_as_they_are() -> None:
    fields = {
        "attempt": 3,
        "delay_seconds": 0.25,
        "state": None,
        "kind": "SignalUnavailable",
        "reason": "The MCP server could not be reached. See MCP__SERVERS__NOTES__URL.",
        "where": ["run:12", "_send_what_waited_for_the_persons_word:200"],
        "model": "openai/gpt-oss-120b",
    }
    with logged() as lines:
        structlog.get_logger().info("turn.failed", **fields)
    [said] = lines
    assert {key: said[key] for key in fields} == fields


def test_a_key_that_is_not_listed_and_a_person_in_clear_are_dropped() -> None:
    with logged() as lines:
        structlog.get_logger().info("turn.failed", text=WORD, person=WORD, chat=WORD)
    [said] = lines
    assert set(said) == {"event", "level", "timestamp"}


def test_chat_keeps_its_id_in_the_log_of_an_install() -> None:
    salt = logs.use_salt(None)
    name = logs.chat_id(f"direct:{ACI}")
    assert logs.use_salt(salt) == salt
    assert logs.chat_id(f"direct:{ACI}") == name
    logs.use_salt(None)
    assert logs.chat_id(f"direct:{ACI}") != name  # in another install
    with logged() as lines:
        structlog.get_logger().info("turn.began", chat=name, person=logs.person_id(ACI))
    [said] = lines
    assert said["chat"] == name
    assert len({said["chat"], said["person"], str(logs.chat_id(ACI))}) == 3
    assert all(len(said[key]) == 8 for key in ("chat", "person"))


def test_a_library_is_named_and_not_quoted_even_where_its_message_cannot_be_made() -> None:
    with logged() as lines:
        library = logging.getLogger("some.library")
        library.warning("%s said %s", WORD)
        library.info(WORD)
        try:
            int(WORD)
        except ValueError:
            library.exception(WORD)
    assert [(said["event"], said["logger"]) for said in lines] == [
        ("library.warning", "some.library")
    ] * 2
    assert (lines[1]["level"], lines[1]["error"]) == ("error", "ValueError")
    assert WORD not in json.dumps(lines)


def test_the_level_can_change_while_loggers_are_in_use() -> None:
    logger = structlog.get_logger()
    with logged("info") as lines:
        logger.debug("one.debug")
        logs.set_level("debug")
        logger.debug("two.debug")
        logs.set_level("error")
        logger.warning("three.warning")
    assert [said["event"] for said in lines] == ["two.debug"]


PROGRAM: Final = """
import asyncio, atexit, logging, threading, time, warnings
from bot.observability import logs
WORD = "sesame"
class Owner:
    def __del__(self):
        raise ValueError(WORD)
async def forget_a_task():
    async def fail(word):
        raise ValueError(word)
    asyncio.get_running_loop().create_task(fail(WORD), name=WORD)
    await asyncio.sleep(0.01)
async def call_back():
    asyncio.get_running_loop().call_soon(int, WORD)
    await asyncio.sleep(0.01)
async def block():
    asyncio.current_task().set_name(WORD)
    time.sleep(0.15)
logs.configure(level="debug", log_format="json")
logs.capture_uncaught()
thread = threading.Thread(target=int, args=(WORD,))
thread.start()
thread.join()
Owner()
warnings.warn(WORD, stacklevel=1)
asyncio.run(forget_a_task())
asyncio.run(call_back())
logging.getLogger().error("%d", WORD)
forget_a_task()
open("/dev/null")
asyncio.run(block())
atexit.register(int, WORD)
raise """
FAILURES: Final = 11
"""Failures of that program, including its final exception and the one at exit."""


@pytest.mark.parametrize(
    "last",
    ["ValueError(WORD)", "ExceptionGroup(WORD, [ValueError(WORD)])", "KeyboardInterrupt(WORD)"],
)
def test_pythons_own_warnings_quote_nothing_and_are_one_line_of_json_each(last: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", PROGRAM + last],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.stdout == ""
    assert WORD not in done.stderr
    assert len(lines) >= FAILURES, lines
    assert {said["event"] for said in lines} <= {"app.uncaught", "library.warning"}
