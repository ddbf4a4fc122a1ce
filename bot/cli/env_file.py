"""The file `.env`: settings beside the program, for its owner alone."""

import os
import re
import tempfile
from pathlib import Path
from typing import Final

from bot.errors import BotError

ENV_FILE: Final = Path(".env")


def add_setting(name: str, value: str, file: Path = ENV_FILE) -> None:
    """Set what has no value yet; the file is made if it is not there, and closed to others.

    Raises:
        BotError: the file cannot be written.
    """
    try:
        text = file.read_text() if file.exists() else ""
        line, empty = f"{name}={value}", re.compile(rf"^#?{name}=[ \t]*$", re.MULTILINE)
        if empty.search(text):
            text = empty.sub(line, text, count=1)
        else:
            text = f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n"
        write_private(file, text)
    except OSError as error:
        raise BotError(f"{file} cannot be written: {error.strerror}") from error


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner may read; it is the old one or the new one, never half.

    Raises:
        OSError: the disk does not let it.
    """
    # Not through a link: what it points to keeps its rights.
    real = Path(os.path.realpath(file))
    descriptor, name = tempfile.mkstemp(dir=real.parent, prefix=f"{real.name}.")
    try:
        with os.fdopen(descriptor, "w") as draft:
            draft.write(text)
            draft.flush()
            os.fsync(draft.fileno())
        Path(name).rename(real)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
