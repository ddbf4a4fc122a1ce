"""One call of one tool, as one pipeline: find, validate, run under a time-out, trim, audit.

Whatever happens to the call is a result that the model reads. Only cancellation and a failing
audit leave the executor.
"""

import asyncio
import json
from time import monotonic
from typing import Any, Final

import structlog

from tools.audit import Audit
from tools.base import Outcome, Tool, ToolRequest, ToolResult
from tools.errors import InvalidArguments, ToolError, ToolTimeout, UnknownTool
from tools.registry import Registry
from tools.settings import RESULT_LIMIT_BYTES

ARGUMENTS_LIMIT_BYTES: Final = 65_536
_MOST_NAME_CHARACTERS: Final = 64

_EMPTY: Final = "The tool ran and returned nothing."
_BUG: Final = "The tool failed because of a fault in the tool itself; trying again will not help."

_log = structlog.get_logger()


class ToolExecutor:
    """Runs what a model asks for.

    Args:
        registry: the tools there are.
        timeout_seconds: for one run of one tool.
        result_limit_bytes: a longer result is cut, as UTF-8.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        timeout_seconds: float,
        result_limit_bytes: int = RESULT_LIMIT_BYTES,
    ) -> None:
        self._registry = registry
        self._timeout_seconds = timeout_seconds
        self._result_limit_bytes = result_limit_bytes

    async def execute(self, request: ToolRequest, audit: Audit) -> ToolResult:
        """Run one call to its end and return what the model reads of it, audited.

        Args:
            request: as the model sent it; nothing about it needs to be right.
            audit: is told before this returns; its errors are not caught.
        """
        started = monotonic()
        outcome, content = await self._attempt(request)
        trimmed = _trim(content, self._result_limit_bytes)
        result = ToolResult(request, outcome, trimmed, monotonic() - started)
        await audit.finished(result)
        return result

    async def _attempt(self, request: ToolRequest) -> tuple[Outcome, str]:
        try:
            tool = self._find(request.tool)
            arguments = _validate(tool, request.arguments)
            content = await self._run(tool, arguments)
        except UnknownTool as error:
            return Outcome.UNKNOWN, str(error)
        except InvalidArguments as error:
            return Outcome.INVALID, str(error)
        except ToolTimeout as error:
            return Outcome.TIMEOUT, str(error)
        except ToolError as error:
            return Outcome.FAILED, str(error)
        except Exception:  # the boundary around every tool: a bug in one must not end the turn
            _log.exception("tool.bug", tool=request.tool)
            return Outcome.BUG, _BUG
        return Outcome.OK, content if content.strip() else _EMPTY

    def _find(self, name: str) -> Tool:
        tool = self._registry.get(name)
        if tool is None:
            names = ", ".join(tool.name for tool in self._registry) or "none"
            raise UnknownTool(
                f"There is no tool named {name[:_MOST_NAME_CHARACTERS]!r}. Tools: {names}."
            )
        return tool

    async def _run(self, tool: Tool, arguments: Any) -> str:
        try:
            async with asyncio.timeout(self._timeout_seconds) as bound:
                return await tool.run(arguments)
        except TimeoutError:
            if not bound.expired():
                raise
            seconds = f"{self._timeout_seconds:g}"
            raise ToolTimeout(f"{tool.name} took over {seconds} seconds and was stopped.") from None


def _validate(tool: Tool, text: str) -> Any:
    if len(text) > ARGUMENTS_LIMIT_BYTES:
        raise InvalidArguments(f"The arguments of {tool.name} are too long.")
    try:
        return tool.parse(text)
    except InvalidArguments as problems:
        schema = json.dumps(tool.parameters, ensure_ascii=False, separators=(",", ":"))
        raise InvalidArguments(
            f"The arguments of {tool.name} are wrong: {problems}. "
            f"Send one JSON object that fits this schema: {schema}"
        ) from None


def _trim(content: str, limit_bytes: int) -> str:
    """Cut a text to a size; what UTF-8 cannot say (lone surrogates) becomes a question mark."""
    encoded = content.encode(errors="replace")
    if len(encoded) <= limit_bytes:
        return encoded.decode()
    kept = encoded[:limit_bytes].decode(errors="ignore")
    return f"{kept}\n[cut: the first {limit_bytes} of {len(encoded)} bytes]"
