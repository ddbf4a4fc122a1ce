"""Facts that the build of an image adds to the source."""

import re
from pathlib import Path
from typing import Final

UNKNOWN: Final = "unknown"


def commit(package: Path = Path(__file__).parent) -> str:
    """Return the commit of the source, from the file `COMMIT` that a build adds to the package."""
    try:
        text = (package / "COMMIT").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return UNKNOWN
    return text if re.fullmatch(r"[0-9a-f]{7,64}", text) else UNKNOWN
