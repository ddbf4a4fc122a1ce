"""An event loop whose clock jumps to the next timer instead of waiting for it.

For tests of code that waits only for timers and its own tasks. Sockets and threads would time
out at once.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

P = ParamSpec("P")


class _SkippingSelector(selectors.SelectSelector):
    def __init__(self, skip: Callable[[float], None]) -> None:
        super().__init__()
        self._skip = skip

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            self._skip(timeout)
        return super().select(None if timeout is None else 0)


class _SkippingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_SkippingSelector(self._advance))

    def _advance(self, seconds: float) -> None:
        self._now += seconds

    def time(self) -> float:
        return self._now


def run_without_waiting(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end; the seconds that it waits take no time."""
    with asyncio.Runner(loop_factory=_SkippingLoop) as runner:
        runner.run(scenario)


def without_waiting(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test in such a loop."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_without_waiting(test(*args, **kwargs))

    return run
