"""The daemon: a Signal assistant that stores first, answers once and can prove who reads along."""

import re
from pathlib import Path

__version__ = "0.1.0"


def built_from(package: Path = Path(__file__).parent) -> str:
    """Return the commit of the source from the file `COMMIT`, which builds add, or `unknown`."""
    try:
        text = (package / "COMMIT").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return "unknown"
    return text if re.fullmatch(r"[0-9a-f]{7,64}", text) else "unknown"
