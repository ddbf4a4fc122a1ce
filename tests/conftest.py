"""Runs every test; `async def` tests get their own event loop and a time limit."""

import asyncio
import gc
import inspect
import os
import signal
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final

import pytest
from hypothesis import settings

from tests.fixtures_attestation import RECORDED

TEST_BOUND_SECONDS: Final = 60.0
LONG_TEST_BOUND_SECONDS: Final = 180.0
"""For tests with the marker `long`: many steps, also on a busy machine."""

FULL_TEST_BOUND_SECONDS: Final = 900.0

# Each run draws the same examples; `pytest --hypothesis-profile=explore` draws new ones.
settings.register_profile("steady", derandomize=True, database=None, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("steady")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test to its end, or fail it when its bound is over.

    A fixture may be an asynchronous context manager; the test runs inside, with its value.
    """
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    bound = _bound_of(pyfuncitem)
    given = pyfuncitem.callspec.params if hasattr(pyfuncitem, "callspec") else {}

    async def bounded() -> None:
        async with asyncio.timeout(bound), AsyncExitStack() as opened:
            for name, value in arguments.items():
                if name not in given and isinstance(value, AbstractAsyncContextManager):
                    arguments[name] = await opened.enter_async_context(value)
            await function(**arguments)

    asyncio.run(bounded())
    return True


def _bound_of(test: pytest.Function) -> float:
    if test.get_closest_marker("full") is not None:
        return FULL_TEST_BOUND_SECONDS
    is_long = test.get_closest_marker("long") is not None
    return LONG_TEST_BOUND_SECONDS if is_long else TEST_BOUND_SECONDS


def pytest_sessionstart() -> None:
    """Fail without recordings under RECORDINGS=required, and let Ctrl-C work.

    A shell makes the programs that it starts in the background ignore SIGINT, and all that they
    start.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("RECORDINGS") == "required" and not RECORDED.is_dir():
        pytest.exit(f"RECORDINGS=required, and they are not in {RECORDED}", returncode=1)


def pytest_collection_finish() -> None:
    """Exempt collected tests from garbage collection, which would pause running tests."""
    gc.collect()
    gc.freeze()
