"""Raises the limit of files and connections that may be open at once.

When none is left (EMFILE), code that needs one tries again later, as after any failed connection.
A failed import cannot be tried again, so this loads what Python otherwise loads on first use.
"""

import codecs
import concurrent.futures.thread  # noqa: F401 - asyncio's threads, loaded on first use
import resource
from typing import Final

import structlog

MAX_DESCRIPTORS: Final = 65_536
"""Far more than is ever needed; more would slow programs that close every possible descriptor."""

BESIDE_THE_MODEL: Final = 256
"""Descriptors of store, Signal, tools and health together, without connections to the model."""

CODECS: Final = ("ascii", "idna", "latin-1", "utf-16-le", "utf-8")

log = structlog.get_logger()


def prepare(*, model_connections: int) -> None:
    """Raise the limit as far as the system allows, and log if that is not enough."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    for codec in CODECS:
        codecs.lookup(codec)
    if wanted < BESIDE_THE_MODEL + model_connections:
        log.warning("descriptors.few", limit=wanted)
