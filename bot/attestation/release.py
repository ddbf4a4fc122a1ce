"""The published release: code, system and key service that a proof is compared with.

A release file is JSON. The publisher of the bot puts it next to the source:

    {"type": "signal-bot-release", "v": 2,
     "version": "1.2.0", "commit": "0123abcd",
     "compose_hashes": ["<SHA-256 of app-compose.json, hex>"],
     "compose_file": "...",
     "os": [{"label": "dstack 0.5.4, 4 CPUs, 8 GB",
             "mrtd": "<48 bytes, hex>", "rtmr0": "...", "rtmr1": "...", "rtmr2": "..."}],
     "kms_ids": ["<SubjectPublicKeyInfo of the key service's CA, hex>"]}

`compose_file` is the Docker Compose file, and a template: operators may choose the values in its
slots. A slot is one value in quotes on a line that names the kind of value:

    STORE__RETENTION_DAYS: "30" # slot: number

A release file is as good as the place where it was found. Never ask a bot for it.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints, field_validator

from bot.attestation.app_compose import (
    MAX_COMPOSE_CHARS,
    configuration_problems,
    read_app_compose,
    variables_of,
)
from bot.attestation.checks import Check, claimed, failed, not_checked, proven, proven_if
from bot.attestation.errors import MalformedEvidence
from bot.attestation.event_log import KEY_SERVICE, BootClaims
from bot.attestation.quote import Label, OsMeasurement, TdQuote
from bot.attestation.strict_json import Hash, KeyId, StrictModel, read
from bot.attestation.tdx_guest import TdFindings

MAX_RELEASE_BYTES: Final = 1024 * 1024
MAX_NAMED: Final = 5
"""Problems that the message of a check names; it counts the others."""

_NAME: Final = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_UUID: Final = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
SLOT_KINDS: Final = {
    "emoji": re.compile("[\u2190-\u2bff\U0001f300-\U0001faff]\ufe0f?"),
    "host": re.compile(rf"{_NAME}(\.{_NAME}){{0,8}}"),
    "name": re.compile("[A-Za-z0-9][A-Za-z0-9._/:-]{0,127}"),
    "number": re.compile("0|[1-9][0-9]{0,8}"),
    "people": re.compile(f"({_UUID}(,{_UUID}){{0,15}})?"),
}
"""Values that a slot takes, by its kind. No pattern may allow a quotation mark, a backslash, a
dollar sign, white space or a line break: then a value cannot become a key, a service or a
variable. No kind may allow the digest of an image: the operator would choose the code."""
SLOT: Final = re.compile(
    r'(?P<before> +(?P<name>[A-Z][A-Z0-9_]*): ")(?P<value>[^"\\$]*)'
    r'(?P<after>" # slot: (?P<kind>[a-z]+))'
)
VARIABLE: Final = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")
"""Value that Docker Compose takes from outside."""


class Release(StrictModel):
    """A published release; the docstring of the module describes the fields."""

    type: Literal["signal-bot-release"]
    v: Annotated[int, Field(ge=2, le=2)]  # Literal[2] would also take 2.0
    version: Label
    commit: Label
    compose_hashes: Annotated[list[Hash], Field(min_length=1, max_length=1000)]
    compose_file: Annotated[str, StringConstraints(max_length=MAX_COMPOSE_CHARS)]
    os: Annotated[list[OsMeasurement], Field(min_length=1, max_length=1000)]
    kms_ids: Annotated[list[KeyId], Field(max_length=100)]

    @field_validator("compose_file")
    @classmethod
    def _slots_are_known(cls, text: str) -> str:
        if any(slot_problems(text)):
            raise ValueError("a slot of an unknown kind, or with a value that does not fit")
        return text

    @classmethod
    def parse(cls, file: bytes) -> "Release":
        """Read a release file."""
        if len(file) > MAX_RELEASE_BYTES:
            raise MalformedEvidence("the release is larger than a release can be")
        return read(cls, file, "the release")

    def choices(self, fields: dict[str, Any]) -> tuple[str, ...]:
        """Return the operator's values in the slots, each as NAME=VALUE.

        Raises:
            MalformedEvidence: its Docker Compose file is not this release's, or it lets in
                variables that the release has no place for.
        """
        foreign = set(variables_of(fields)) - set(VARIABLE.findall(self.compose_file))
        if foreign:
            raise MalformedEvidence(f"it lets in {', '.join(sorted(foreign))}")
        return slot_values(self.compose_file, fields["docker_compose_file"])


def slot_problems(compose_file: str) -> list[str]:
    """Name the lines of a published Docker Compose file whose slot is not a valid one."""
    problems = []
    for number, line in enumerate(compose_file.split("\n"), 1):
        slot = SLOT.fullmatch(line)
        if slot is None and "# slot:" not in line:
            continue
        kind = SLOT_KINDS.get(slot["kind"]) if slot else None
        if slot is None or kind is None or not kind.fullmatch(slot["value"]):
            problems.append(
                f'line {number}: NAME: "VALUE" # slot: KIND is expected, of a known kind'
            )
    return problems


def slot_values(published: str, shown: str) -> tuple[str, ...]:
    """Compare two Docker Compose files line by line; return the second's values, NAME=VALUE.

    Takes time linear in the texts. All bytes outside the slots must be the same.

    Raises:
        MalformedEvidence: they differ outside a slot, or a value does not fit its slot.
    """
    ours, theirs = published.split("\n"), shown.split("\n")
    values = []
    for number, (line, other) in enumerate(zip(ours, theirs, strict=False), 1):
        slot = SLOT.fullmatch(line)
        if slot is None:
            if line != other:
                raise MalformedEvidence(f"line {number} of its compose file is another one")
            continue
        value = other[len(slot["before"]) : len(other) - len(slot["after"])]
        fits = SLOT_KINDS[slot["kind"]].fullmatch(value) is not None
        if not fits or f"{slot['before']}{value}{slot['after']}" != other:
            raise MalformedEvidence(f"line {number} of its compose file does not fit its slot")
        values.append(f"{slot['name']}={value}")
    if len(ours) != len(theirs):
        raise MalformedEvidence("its compose file has more lines or fewer")
    return tuple(values)


def with_slot_values(published: str, values: Mapping[str, str]) -> str:
    """Return a Docker Compose file with other values in its slots.

    Raises:
        MalformedEvidence: a value has no slot, or does not fit it.
    """
    lines = published.split("\n")
    slots = {number: slot for number, line in enumerate(lines) if (slot := SLOT.fullmatch(line))}
    names = {slot["name"] for slot in slots.values()}
    if foreign := values.keys() - names:
        raise MalformedEvidence(
            f"the release has no slot {', '.join(sorted(foreign))}, but {', '.join(sorted(names))}"
        )
    for number, slot in slots.items():
        value = values.get(slot["name"], slot["value"])
        if not SLOT_KINDS[slot["kind"]].fullmatch(value):
            raise MalformedEvidence(f"the slot {slot['name']} takes a value of kind {slot['kind']}")
        lines[number] = f"{slot['before']}{value}{slot['after']}"
    return "\n".join(lines)


# Checks


def environment_check(app_compose: str, release: Release | None, *, is_running: bool) -> Check:
    """Return `environment`: whether the operator has a say in anything that a proof is about.

    Args:
        is_running: whether it is proven that this app-compose.json was started.
    """
    if not is_running:
        why = "the environment of another application than the running one says nothing"
        return not_checked("environment", why, asked=True)
    try:
        fields = read_app_compose(app_compose)
        problems = list(configuration_problems(fields))
    except MalformedEvidence as error:
        problems = [str(error)]
    if problems:
        named = "; ".join(problems[:MAX_NAMED])
        more = f"; and {len(problems) - MAX_NAMED} more" if len(problems) > MAX_NAMED else ""
        message = f"the configuration may leave decisions to its operator: {named}{more}"
        return failed("environment", message)
    variables = ", ".join(variables_of(fields))
    if release is None:
        sets = f"the operator sets {variables}; " if variables else ""
        why = "only a release file tells what else the configuration leaves to the operator"
        return not_checked("environment", f"{sets}{why}")
    try:
        choices = ", ".join(release.choices(fields))
    except MalformedEvidence as error:
        return not_checked("environment", f"the configuration was not published: {error}")
    chosen = f"; the operator has chosen {choices}, which is measured" if choices else ""
    if variables:
        message = f"the operator sets {variables}, and nothing else: read what they decide"
        return not_checked("environment", f"{message}{chosen}")
    return proven("environment", f"nothing in there is left to the operator{chosen}")


def release_checks(
    findings: TdFindings, release: Release | None, app_compose: str
) -> tuple[Check, Check, Check]:
    """Compare a machine with a release: `release`, `os`, `key_provider`."""
    boot = findings.boot
    if release is None:
        none = "there was no release file to compare with"
        compare = f"; compare the compose hash yourself: {boot.compose_hash.hex()}" if boot else ""
        unknown = f"{none}; an unknown system may say anything of the code on it"
        provider = not_checked("key_provider", none)
        if boot is not None and boot.key_provider != KEY_SERVICE:
            provider = claimed("key_provider", f"beware: {_no_key_service(boot)}")
        return not_checked("release", f"{none}{compare}"), not_checked("os", unknown), provider
    return (
        _release_check(findings, release, app_compose),
        _os_check(findings.quote, release),
        _key_provider_check(boot, release),
    )


def _release_check(findings: TdFindings, release: Release, app_compose: str) -> Check:
    if findings.compose_hash is None:
        return not_checked("release", "it is not known which code started", asked=True)
    compose_hash = findings.compose_hash.hex()
    name = f"release {release.version} (commit {release.commit})"
    if compose_hash in release.compose_hashes:
        return proven("release", f"what runs is {name}, compose hash {compose_hash}")
    try:
        fields = read_app_compose(app_compose)
        problem = next(configuration_problems(fields), None)
        choices = () if problem else release.choices(fields)
    except MalformedEvidence as error:
        problem = str(error)
    if problem is not None:
        message = (
            f"another code runs than {name}: its compose hash is {compose_hash}, and {problem}"
        )
        return failed("release", message)
    chosen = f" with {', '.join(choices)}" if choices else ""
    return proven("release", f"what runs is {name}{chosen}, compose hash {compose_hash}")


def _os_check(quote: TdQuote, release: Release) -> Check:
    for system in release.os:
        if system.matches(quote):
            return proven("os", f"the system below the code is a published one: {system.label}")
    return failed("os", "the system below the code is not a published one")


def _key_provider_check(boot: BootClaims | None, release: Release) -> Check:
    if boot is None:
        return not_checked("key_provider", "the source of its keys cannot be read", asked=True)
    if boot.key_provider != KEY_SERVICE:
        return failed("key_provider", f"not the published key service: {_no_key_service(boot)}")
    return proven_if(
        boot.key_provider_id in release.kms_ids,
        "key_provider",
        "the bot's keys come from the published key service",
        "the bot's keys come from another key service than the published one",
    )


def _no_key_service(boot: BootClaims) -> str:
    return f"the bot's keys come from {boot.key_provider}, and may end with a restart or an upgrade"
