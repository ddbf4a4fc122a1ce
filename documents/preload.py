"""Loading whole libraries before the sandbox closes: many load parts of themselves when needed."""

import pkgutil
from contextlib import suppress
from importlib import import_module
from types import ModuleType


def load_all_of(package: ModuleType) -> None:
    """Import every module of a package that can be imported here."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", lambda _: None):
        with suppress(ImportError):  # some are for other systems, or for what is not installed
            import_module(module.name)
