"""What the build of an image knows and the source does not."""

import re
from pathlib import Path
from typing import Final

UNKNOWN: Final = "unknown"


def commit(package: Path = Path(__file__).parent) -> str:
    """Return the commit of the source: the text of a file `COMMIT` that a build puts in here.

    Args:
        package: the folder of this package.
    """
    try:
        text = (package / "COMMIT").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return UNKNOWN
    return text if re.fullmatch(r"[0-9a-f]{7,64}", text) else UNKNOWN
