"""What becomes of a call, whatever the model sent and whatever the tool does."""

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from tools.base import Outcome, ToolRequest, ToolResult
from tools.errors import InvalidArguments, ToolError
from tools.executor import ToolExecutor
from tools.registry import Registry
from tools.schema import tool_from

SECRET = "what a person wrote"


class Results(list[ToolResult]):
    """An audit that remembers."""

    async def starting(self, request: ToolRequest) -> None:
        pass

    async def finished(self, result: ToolResult) -> None:
        self.append(result)


async def echo(text: str, times: int = 1) -> str:
    """Say it again.

    Args:
        text: what to say.
        times: how often.
    """
    return text * times


async def hang() -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return "impossible"


async def refuse() -> str:
    """Refuse."""
    raise ToolError("The place is unknown.")


async def reject() -> str:
    """Find the arguments wrong."""
    raise InvalidArguments("The date lies in the past.")


async def crash() -> str:
    """Fail."""
    raise KeyError(SECRET)


async def time_out_inside() -> str:
    """Let a time-out of its own escape."""
    raise TimeoutError(SECRET)


EXECUTOR = ToolExecutor(
    Registry([tool_from(f) for f in (echo, hang, refuse, reject, crash, time_out_inside)]),
    timeout_seconds=0.05,
    result_limit_bytes=1_000,
)


async def execute(tool: str, arguments: str = "{}") -> ToolResult:
    results = Results()
    request = ToolRequest("call_1", tool, arguments, "someone")
    result = await EXECUTOR.execute(request, results)
    assert results == [result]
    assert result.request is request
    return result


async def test_a_call_is_run_and_audited() -> None:
    result = await execute("echo", '{"text": "Hi", "times": 2}')
    assert (result.outcome, result.content) == (Outcome.OK, "HiHi")
    assert 0 <= result.duration_seconds < 5


async def test_an_unknown_tool_is_answered_with_those_there_are() -> None:
    result = await execute("ecko")
    assert result.outcome is Outcome.UNKNOWN
    assert result.content == (
        "There is no tool named 'ecko'. Tools: crash, echo, hang, refuse, reject, time_out_inside."
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("", "text: Field required"),
        ("not JSON", "Invalid JSON"),
        ("[]", "should be an object"),
        ('{"text": 5}', "text: Input should be a valid string"),
        ('{"text": "a", "times": "often"}', "times: Input should be a valid integer"),
        ('{"text": "a", "volume": 11}', "volume: Extra inputs are not permitted"),
        ('{"text": "\\ud800"}', "Invalid JSON"),
        ("[" * 60_000, "Invalid JSON"),
    ],
)
async def test_wrong_arguments_are_answered_with_what_to_send(arguments: str, problem: str) -> None:
    result = await execute("echo", arguments)
    assert result.outcome is Outcome.INVALID
    assert problem in result.content
    assert '"required":["text"]' in result.content


async def test_the_complaint_about_arguments_is_bounded_and_does_not_repeat_them() -> None:
    many = json.dumps({"text": SECRET} | {f"argument_{number}" * 50: 1 for number in range(50)})
    result = await execute("echo", many)
    assert result.outcome is Outcome.INVALID
    assert len(result.content) < 1_000
    assert SECRET not in result.content


async def test_a_mountain_of_arguments_is_not_even_parsed() -> None:
    result = await execute("echo", json.dumps({"text": "x" * 10_000_000}))
    assert (result.outcome, result.content) == (
        Outcome.INVALID,
        "The arguments of echo are too long.",
    )


async def test_a_tool_that_needs_nothing_may_be_called_with_nothing() -> None:
    assert (await execute("refuse", "  ")).outcome is Outcome.FAILED


async def test_an_expected_failure_is_told_in_the_tools_own_words() -> None:
    result = await execute("refuse")
    assert (result.outcome, result.content) == (Outcome.FAILED, "The place is unknown.")


async def test_a_tool_may_find_arguments_wrong_that_fit_the_schema() -> None:
    result = await execute("reject")
    assert (result.outcome, result.content) == (Outcome.INVALID, "The date lies in the past.")


async def test_a_slow_tool_is_stopped() -> None:
    result = await execute("hang")
    assert result.outcome is Outcome.TIMEOUT
    assert result.content == "hang took over 0.05 seconds and was stopped."


@pytest.mark.parametrize("tool", ["crash", "time_out_inside"])
async def test_a_bug_is_logged_and_told_without_details(tool: str) -> None:
    with capture_logs() as logs:
        result = await execute(tool)
    assert result.outcome is Outcome.BUG
    assert SECRET not in result.content
    assert [(log["event"], log["tool"]) for log in logs] == [("tool.bug", tool)]


async def test_an_empty_result_says_so() -> None:
    result = await execute("echo", '{"text": " "}')
    assert (result.outcome, result.content) == (Outcome.OK, "The tool ran and returned nothing.")


async def test_a_long_result_is_cut_between_characters() -> None:
    result = await execute("echo", '{"text": "€", "times": 500}')
    assert result.content == "€" * 333 + "\n[cut: the first 1000 of 1500 bytes]"


async def test_a_result_is_always_text_that_can_be_stored() -> None:
    async def broken() -> str:
        """Return half a character."""
        return "a\ud800b"

    executor = ToolExecutor(Registry([tool_from(broken)]), timeout_seconds=1)
    result = await executor.execute(ToolRequest("call_1", "broken", "", "someone"), Results())
    assert result.content == "a?b"


async def test_cancelling_a_turn_cancels_its_call_and_leaves_no_result() -> None:
    entered = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        entered.set()
        await asyncio.Event().wait()
        return ""

    results = Results()
    executor = ToolExecutor(Registry([tool_from(wait)]), timeout_seconds=60)
    async with asyncio.TaskGroup() as turn:
        call = turn.create_task(
            executor.execute(ToolRequest("call_1", "wait", "", "someone"), results)
        )
        await entered.wait()
        call.cancel()
    assert call.cancelled()
    assert results == []


async def test_a_failing_audit_is_not_hidden() -> None:
    class Full(Results):
        async def finished(self, result: ToolResult) -> None:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await EXECUTOR.execute(ToolRequest("call_1", "echo", '{"text": "Hi"}', "someone"), Full())
