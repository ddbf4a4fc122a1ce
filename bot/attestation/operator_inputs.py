"""What is left to whoever operates the machine.

Everything in app-compose.json is measured. But it may say that what nothing measures decides:
variables of dstack's encrypted environment, whose values the host may replace at each start; files
of the machine; scripts; logs for everybody. So this is a closed list of what may stand there, with
its values: the manifest here, the Docker Compose file in it in `compose_grammar`. Whatever the
statement then claims would else be the operator's word and not the code's.

Variables are variables of the guest itself before any container starts: its shell runs what
BASH_ENV names, Docker Compose starts what COMPOSE_FILE does. So only names that are known to decide
nothing may be among them.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from bot.attestation.checks import Check, failed, not_checked, proven
from bot.attestation.compose import MAX_APP_COMPOSE_CHARS
from bot.attestation.compose_grammar import FROM_OUTSIDE, compose_problems
from bot.attestation.errors import MalformedEvidence
from bot.attestation.strict_json import decode

MAX_VARIABLES: Final = 1000
MAX_NAMED: Final = 5
"""Problems that a check's message names; of more they say how many."""

_Accepts = Callable[[object], bool]


def environment_check(app_compose: str, *, is_running: bool) -> Check:
    """Return `environment`: whether the operator has a say in what a proof is about.

    Args:
        app_compose: the text of app-compose.json.
        is_running: whether it is proven to be the one that was started.
    """
    if not is_running:
        why = "the environment of another application than the running one says nothing"
        return not_checked("environment", why, asked=True)
    problems = list(configuration_problems(app_compose))
    if problems:
        message = "the configuration has what may leave to its operator what only the code should"
        return failed("environment", f"{message} decide: {_listed(problems)}")
    names = variables(app_compose)
    if names:
        message = f"whoever operates the machine sets {', '.join(names)}"
        return not_checked("environment", f"{message}, and nothing else: read what they decide")
    return proven("environment", "nothing in there is left to whoever operates the machine")


def configuration_problems(app_compose: str) -> Iterator[str]:
    """Name everything in app-compose.json that is not on the list."""
    if len(app_compose) > MAX_APP_COMPOSE_CHARS:
        yield "app-compose.json is longer than this program reads"
        return
    try:
        fields = decode(app_compose, "app-compose.json")
    except MalformedEvidence as error:
        yield str(error)
        return
    if not isinstance(fields, dict):
        yield "app-compose.json is no object"
        return
    for name in sorted(_REQUIRED - fields.keys()):
        yield f"app-compose.json has no {name}"
    for name, value in fields.items():
        yield from _field_problems(name, value)
    compose = fields.get("docker_compose_file")
    if isinstance(compose, str):
        for problem in compose_problems(compose, _names(fields.get("allowed_envs"))):
            yield f"compose file, {problem}"


def variables(app_compose: str) -> tuple[str, ...]:
    """Return the variables that come from outside, of a configuration without problems."""
    fields = decode(app_compose, "app-compose.json")
    return _names(fields.get("allowed_envs")) if isinstance(fields, dict) else ()


def _field_problems(name: str, value: object) -> Iterator[str]:
    if name == "allowed_envs":
        yield from _variable_problems(value)
    elif name not in _MANIFEST:
        yield f"{_shown(name)} is not on the list of what app-compose.json may have"
    elif not _MANIFEST[name](value):
        yield f"{name} has another value than it may have"


def _variable_problems(value: object) -> Iterator[str]:
    """Old tools write null where no variable comes in."""
    if value is None:
        return
    if not isinstance(value, list) or len(value) > MAX_VARIABLES:
        yield f"allowed_envs is no list of at most {MAX_VARIABLES} names"
        return
    for name in value:
        if not isinstance(name, str) or not FROM_OUTSIDE.fullmatch(name):
            yield f"allowed_envs has {_shown(name)}, which decides more than a secret"


def _names(allowed_envs: object) -> tuple[str, ...]:
    names = allowed_envs if isinstance(allowed_envs, list) else []
    return tuple(name for name in names if isinstance(name, str))


def _shown(name: object) -> str:
    """Return a stranger's word if it is harmless to show."""
    if isinstance(name, str) and re.fullmatch("[A-Za-z0-9_.-]{1,64}", name):
        return name
    return "a name that cannot be shown"


def _listed(problems: list[str]) -> str:
    more = len(problems) - MAX_NAMED
    return "; ".join(problems[:MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")


# The manifest: dstack-types, AppCompose


def _one_of(*values: object) -> _Accepts:
    """Whether it is one of these, and of its type: 1 is no True."""
    return lambda value: any(type(value) is type(one) and value == one for one in values)


def _matches(pattern: str) -> _Accepts:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _features(value: object) -> bool:
    return isinstance(value, list) and all(one in ("kms", "tproxy-net") for one in value)


def _is_size(value: object) -> bool:
    return (type(value) is int and value >= 0) or _matches("[0-9]{1,6}[KMGT]?")(value)


_TRUTH: Final = _one_of(True, False)
_NO_SCRIPT: Final = _one_of("")

_REQUIRED: Final = {"docker_compose_file", "runner"}
_MANIFEST: Final[dict[str, _Accepts]] = {
    "bash_script": _NO_SCRIPT,
    "docker_compose_file": lambda value: isinstance(value, str),  # has a grammar of its own
    "docker_config": _one_of({}),
    "event_log_version": _one_of(1, 2),
    "features": _features,
    "gateway_enabled": _TRUTH,  # reaches published ports, and no service has any
    "init_script": _NO_SCRIPT,
    "key_provider": _one_of("kms", "local", "none", "tpm"),  # `key_provider` says what it is worth
    "key_provider_id": _matches("([0-9a-f]{2}){0,1024}"),
    "kms_enabled": _TRUTH,
    "local_key_provider_enabled": _TRUTH,
    "manifest_version": _one_of(1, 2),
    "name": _matches("[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}"),
    "no_instance_id": _TRUTH,
    "pre_launch_script": _NO_SCRIPT,
    "public_logs": _one_of(False),
    "public_sysinfo": _one_of(False),
    "public_tcbinfo": _TRUTH,  # what every proof shows
    "runner": _one_of("docker-compose"),
    "secure_time": _TRUTH,
    "storage_fs": _one_of("ext4", "zfs", "btrfs"),
    "swap_size": _is_size,
    "tproxy_enabled": _TRUTH,
}
