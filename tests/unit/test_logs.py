"""What a log line tells of an exception."""

import json
import sys

import pytest
import structlog

from bot.observability import logs


def test_of_an_exception_in_a_group_its_kind_and_its_places_are_logged_and_not_its_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stumble() -> None:
        raise KeyError("direct:ada")

    processors = [logs.describe_exception, logs.drop_unknown_keys]
    logger = structlog.wrap_logger(
        structlog.WriteLogger(sys.stdout),
        processors=[*processors, structlog.processors.JSONRenderer()],
    )
    try:
        stumble()
    except KeyError as error:
        group = ExceptionGroup("several", [ExceptionGroup("deeper", [error])])
        logger.error("app.bug", exc_info=group)
    said = json.loads(capsys.readouterr().out)
    assert (said["event"], said["error"]) == ("app.bug", "KeyError")
    assert said["where"][-1].startswith("stumble:")
    assert "ada" not in json.dumps(said)
