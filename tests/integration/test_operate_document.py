"""docs/OPERATE.md is true: reloadable settings and the address of health.

`test_documents.py` checks commands, settings and links of all pages.
"""

import re
from pathlib import Path
from typing import Final

from bot.config.loading import setting_names
from bot.config.reload import LIVE
from bot.config.settings import Settings

ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = (ROOT / "docs" / "OPERATE.md").read_text()
WORDS: Final = " ".join(DOCUMENT.split())


def test_settings_that_change_without_a_restart_are_listed() -> None:
    [said] = re.findall(r"Without a restart change (.*?), and the bot's manners", WORDS)
    named = set(re.findall(r"\b[A-Z]+__[A-Z_]+[A-Z]\b", said))
    assert {"LOG__LEVEL", "BOT__SYSTEM_PROMPT"} <= named <= LIVE
    of_access = {name for name in setting_names() if name.startswith("ACCESS__")}
    assert of_access - LIVE == {"ACCESS__NOTE_TO_SELF"}
    others = {name.partition("__")[0] for name in LIVE - named - of_access}
    assert others == {"TOOLS", "BOT"}


def test_the_address_of_health_is_the_default_one() -> None:
    assert f"http://{Settings.model_fields['health'].default.listen}" in DOCUMENT
