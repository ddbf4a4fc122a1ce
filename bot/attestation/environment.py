"""What is left to whoever operates the machine: dstack's encrypted environment.

Nothing measures its values, and the host may put others in their place at each start. Which
variables get in, app-compose.json says, and that is measured. They are variables of the guest
itself before any container starts: its shell runs what BASH_ENV names, Docker Compose starts what
COMPOSE_FILE does. So only names that are known to decide nothing may be among them, and only in
places of the compose file where they decide nothing: whatever the statement then claims would
else be the operator's word and not the code's.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Final

import yaml
from pydantic import BaseModel, Field

from bot.attestation.checks import Check, failed, not_checked, proven
from bot.attestation.compose import compose_nodes
from bot.attestation.errors import MalformedEvidence
from bot.attestation.strict_json import read

MAX_VARIABLES: Final = 1000
MAX_NAMED: Final = 20
MAX_NODES: Final = 20_000
"""Of a compose file, with what stands in there by reference."""

_MAY_BE_THE_OPERATORS: Final = re.compile(
    "SIGNAL__PHONE_NUMBER|LLM__API_KEY|TOOLS__WEB_SEARCH__API_KEY|ACCESS__ALLOWED"
    r"|MCP__SERVERS__\w+__(TOKEN|ENV__\w*(KEY|PASSWORD|SECRET|TOKEN))|HEALTH__LISTEN"
    "|LOG__(LEVEL|FORMAT)|SIGNAL_(CAPTCHA|CODE)"
)
"""Secrets, what registers the account, and what changes nothing for people: an account stands in
the statement anyway."""

_A_SECRET: Final = re.compile("([A-Z0-9]+_)*(KEY|PASSWORD|SECRET|TOKEN)")
"""What a container may call one of those that is no setting of the bot's."""


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
    try:
        decisive = [
            *(name for name in names if not _MAY_BE_THE_OPERATORS.fullmatch(name.upper())),
            *_left_open(app.docker_compose_file, has_variables=bool(names)),
        ]
    except MalformedEvidence as error:
        return failed("environment", str(error))
    if decisive:
        words = "whoever operates the machine decides, unseen, what only the code should"
        return failed("environment", f"{words}: {_listed(decisive)}")
    scripts = [name for name in ("pre_launch_script", "init_script") if getattr(app, name)]
    if scripts or names:
        return not_checked("environment", f"{_open_ends(names, scripts)}: read what they decide")
    return proven("environment", "nothing in there is left to whoever operates the machine")


def _left_open(compose: str, *, has_variables: bool) -> Iterator[str]:
    """Name the places of a compose file that get what nothing measures, where that decides."""
    for path, node in compose_nodes(compose, at_most=MAX_NODES):
        if _is_a_source(path):
            yield ".".join(path)
        elif has_variables and isinstance(node, yaml.ScalarNode) and _has_variable(node.value):
            yield from _decided(path, node.value)


def _is_a_source(path: tuple[str, ...]) -> bool:
    """Whether a file or a variable of the guest gets in there without being named by `$`."""
    match path:
        case ("services", _, "env_file"):
            return True
        case ("configs" | "secrets", _, "environment" | "file"):
            return True
        case _:
            return False


def _has_variable(text: str) -> bool:
    return "$" in text.replace("$$", "")


def _decided(path: tuple[str, ...], text: str) -> Iterator[str]:
    """Name what a text with a variable in it decides, if that is more than a secret."""
    match path:
        case ("services", _, "environment", ""):
            name = text.partition("=")[0]
        case ("services", _, "environment", name):
            pass
        case ("services", _, "command", ""):
            return  # that depends on the program: the variable is named for people to read
        case _:
            name = ".".join(path)
    # The bot's settings have no case.
    if not any(kind.fullmatch(name.upper()) for kind in (_MAY_BE_THE_OPERATORS, _A_SECRET)):
        yield name


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
