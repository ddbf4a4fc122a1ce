from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.contract.harnesses import HARNESSES, TRANSPORTS, Harness, Open


@pytest.fixture(params=TRANSPORTS)
def open_harness(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return partial(HARNESSES[request.param], tmp_path)


@pytest.fixture
def harness(open_harness: Open) -> AbstractAsyncContextManager[Harness]:
    return open_harness()
