from functools import partial
from pathlib import Path

import pytest

from tests.contract.harnesses import HARNESSES, TRANSPORTS, Open


@pytest.fixture(params=TRANSPORTS)
def open_harness(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return partial(HARNESSES[request.param], tmp_path)
