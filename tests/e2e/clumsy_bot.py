"""The daemon with one more tool, which raises errors that contain people's words, in every way.

python -m tests.e2e.clumsy_bot run
"""

import asyncio
import logging
import sys
import threading
import warnings
from typing import cast

import structlog

from bot.cli.main import main
from tools.catalog import CATALOG
from tools.schema import tool_from

_forgotten = set[asyncio.Task[None]]()


class _Owner:
    """Raises an error when it is garbage collected."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __del__(self) -> None:
        raise ValueError(self._words)


async def stumble(words: str) -> str:
    """Fail.

    Args:
        words: The failure to raise.
    """
    loop = asyncio.get_running_loop()
    thread = threading.Thread(target=int, args=(words,), name=words)
    thread.start()
    await asyncio.to_thread(thread.join)
    _Owner(words)
    loop.call_soon(int, words)
    loop.create_task(_fail(words), name=words).add_done_callback(_forgotten.discard)
    await asyncio.sleep(0)
    warnings.warn(words, stacklevel=1)
    logging.getLogger("clumsy").error("%s", words)
    logging.getLogger("clumsy").warning("%d", words)
    log = structlog.get_logger()
    log.error(words, text=words, person=words, chat=words, waiting={words: words})
    raise ExceptionGroup(words, [KeyError(words), OSError(2, words, words)]) from ValueError(words)


async def _fail(words: str) -> None:
    raise ValueError(words)


if __name__ == "__main__":
    cast("dict[str, object]", CATALOG)["stumble"] = tool_from(stumble)
    sys.exit(main())
