"""What is left to whoever operates the machine: dstack's encrypted environment.

Nothing measures its values, and the host may put others in their place at each start. Which
variables get in, app-compose.json says, and that is measured. So a setting that decides what a
proof is worth must not be among them: whatever the statement then claims would be the operator's
word and not the code's.
"""

import re
from typing import Annotated, Final

from pydantic import BaseModel, Field

from bot.attestation.checks import Check, failed, not_checked, proven
from bot.attestation.errors import MalformedEvidence
from bot.attestation.strict_json import read

MAX_VARIABLES: Final = 1000
MAX_NAMED: Final = 20

_A_SETTING: Final = re.compile(r"\w+__\w+")
_MAY_BE_THE_OPERATORS: Final = re.compile(
    "SIGNAL__PHONE_NUMBER|LLM__API_KEY|TOOLS__WEB_SEARCH__API_KEY|ACCESS__ALLOWED"
    r"|MCP__SERVERS__\w+__(TOKEN|ENV__\w*(KEY|PASSWORD|SECRET|TOKEN))|HEALTH__LISTEN"
    "|LOG__(LEVEL|FORMAT)"
)
"""Secrets, and what changes nothing for people: an account stands in the statement anyway."""


_GIVEN_BY_A_VARIABLE: Final = re.compile(r"(\w+__\w+)[\"']?\s*[:=][^\n]*\$")
"""`ATTESTATION__KEY_ORIGIN=${X}`: the setting is X, by whatever name X gets in."""


class _AppCompose(BaseModel):
    docker_compose_file: str = ""
    allowed_envs: Annotated[tuple[str, ...], Field(max_length=MAX_VARIABLES)] | None = None
    pre_launch_script: str | None = None
    init_script: str | None = None


def environment_check(app_compose: str, *, is_running: bool) -> Check:
    """Return `environment`: whether the operator has a say in what a proof is about.

    Args:
        app_compose: the text of app-compose.json.
        is_running: whether it is proven to be the one that was started.
    """
    if not is_running:
        why = "the environment of another application than the running one says nothing"
        return not_checked("environment", why, asked=True)
    try:
        app = read(_AppCompose, app_compose, "app-compose.json")
    except MalformedEvidence as error:
        return failed("environment", str(error))
    names = app.allowed_envs or ()
    renamed = _GIVEN_BY_A_VARIABLE.findall(app.docker_compose_file) if names else ()
    if decisive := [name for name in (*names, *renamed) if _decides(name)]:
        words = "whoever operates the machine decides, unseen, what only the code should"
        return failed("environment", f"{words}: {_listed(decisive)}")
    scripts = [name for name in ("pre_launch_script", "init_script") if getattr(app, name)]
    if scripts or names:
        return not_checked("environment", f"{_open_ends(names, scripts)}: read what they decide")
    return proven("environment", "nothing in there is left to whoever operates the machine")


def _decides(name: str) -> bool:
    """Whether it is a setting of the bot's that people rely on; their names have no case."""
    setting = name.upper()
    return bool(_A_SETTING.fullmatch(setting)) and not _MAY_BE_THE_OPERATORS.fullmatch(setting)


def _open_ends(names: tuple[str, ...], scripts: list[str]) -> str:
    parts = []
    if names:
        parts.append(f"whoever operates the machine sets {_listed(names)}")
    if scripts:
        parts.append(f"the configuration has scripts of its own ({_listed(scripts)})")
    return ", and ".join(parts)


def _listed(names: tuple[str, ...] | list[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
