"""Files and connections that may be open at once: as many as the system lets us have.

Where there are none left (EMFILE), whatever wanted one tries again later, as after any failed
connection. Importing a module cannot be tried again, so what Python itself loads on first use is
loaded here.
"""

import codecs
import concurrent.futures.thread  # noqa: F401 - asyncio's threads, loaded on first use
import resource
from typing import Final

import structlog

MAX_DESCRIPTORS: Final = 65_536
"""Far more than is ever needed; and programs that we start may look at each that could be open."""

BESIDE_THE_MODEL: Final = 256
"""What store, Signal, tools and health may have open together, connections to the model aside."""

CODECS: Final = ("ascii", "idna", "latin-1", "utf-16-le", "utf-8")

log = structlog.get_logger()


def prepare(*, model_connections: int) -> None:
    """Raise the limit to what we may have, and say so where that is not enough.

    Args:
        model_connections: that may be open at once.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    for codec in CODECS:
        codecs.lookup(codec)
    if wanted < BESIDE_THE_MODEL + model_connections:
        log.warning("descriptors.few", limit=wanted)
