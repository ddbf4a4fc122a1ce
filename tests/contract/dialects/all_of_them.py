"""Every dialect that has a harness, by the name of its module."""

import importlib
import pkgutil
from typing import Final

from tests.contract import dialects
from tests.contract.dialects.harness import Harness

HARNESSES: Final[list[Harness]] = [
    module.HARNESS
    for found in pkgutil.iter_modules(dialects.__path__)
    if found.name != __name__.rpartition(".")[2]
    and hasattr(module := importlib.import_module(f"{dialects.__name__}.{found.name}"), "HARNESS")
]
