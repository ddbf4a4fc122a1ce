"""How every test runs: `async def` tests get a loop of their own and a bound."""

import asyncio
import inspect
from typing import Final

import pytest

TEST_BOUND_SECONDS: Final = 20.0
FULL_TEST_BOUND_SECONDS: Final = 900.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test to its end, or fail it when its bound is over."""
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    full = pyfuncitem.get_closest_marker("full") is not None
    bound = FULL_TEST_BOUND_SECONDS if full else TEST_BOUND_SECONDS

    async def bounded() -> None:
        async with asyncio.timeout(bound):
            await function(**arguments)

    asyncio.run(bounded())
    return True
