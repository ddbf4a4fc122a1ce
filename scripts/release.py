"""`python -m scripts.release`: make the files that are deployed and published.

`make release` builds and pushes the images first, and runs this. It writes three files, and the
same bytes for the same input:

- dstack-compose.yaml: the compose file with the images in it;
- app-compose.json: dstack starts and measures it; it is deployed byte for byte;
- release.json: `signal-tee-bot verify --release` compares a bot with it.
"""

import hashlib
import json
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from bot import __version__, built_from
from bot.attestation.app_compose import (
    MAX_APP_COMPOSE_CHARS,
    MAX_COMPOSE_CHARS,
    PINNED,
    configuration_problems,
    images_of,
    read_app_compose,
    variables_of,
)
from bot.attestation.errors import MalformedEvidence
from bot.attestation.event_log import KEY_SERVICE
from bot.attestation.near_ai.pins import MAX_PINS_BYTES, ModelPins
from bot.attestation.quote import OsMeasurement
from bot.attestation.release import VARIABLE, Release, environment_check, slot_problems
from bot.attestation.strict_json import decode
from bot.config.loading import DELIMITER, settings_of
from bot.errors import BotError, SettingsError

COMPOSE_FILE: Final = Path("deploy/dstack-compose.yaml")
APP_NAME: Final = "signal-tee-bot"
MAX_MEASUREMENT_BYTES: Final = 64 * 1024
REGISTERS: Final = ("mrtd", "rtmr0", "rtmr1", "rtmr2")

_PLACE: Final = re.compile(r"(?<=image: )([a-z0-9._/-]+)@sha256:unreleased$", re.MULTILINE)
_PINS: Final = "ATTESTATION__MODEL_PINS"
_PLACE_OF_PINS: Final = re.compile(rf"(?<={_PINS}: )unreleased$", re.MULTILINE)
_SECRET: Final = re.compile(r"\w+(KEY|PASSWORD|SECRET|TOKEN)")
_SOME_NUMBER: Final = {"SIGNAL__PHONE_NUMBER": "+15550100000"}
"""Value for the required setting that comes from outside."""

_NEXT: Final = """\
Release {version} (commit {commit}) is in {directory}:

  compose hash  {compose_hash}
  images        {images}
  verify says   {environment}

Next:
  1. Deploy app-compose.json as it is: one byte more changes its hash. If a tool writes its own
     app-compose.json, give it dstack-compose.yaml. Then run this again, into another folder, with
     --app-compose and the tool's file.
  2. Give the encrypted environment all of these, in this order, even those that stay empty; some
     tools write another app-compose.json for any other list:
       {variables}
  3. Publish the three files with the source, where others would notice a change."""


class ReleaseRefused(BotError):
    """Something in the release would not be proven, or would be up to the operator."""


def main() -> int:
    """Make a release; return the exit code."""
    try:
        print(make_release(_arguments()))
    except SettingsError as error:
        print("\n".join(error.problems), file=sys.stderr)
        return 2
    except BotError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def make_release(order: Namespace) -> str:
    """Write the three files of a release; return the next steps for the publisher.

    Args:
        order: the arguments of the command.

    Raises:
        SettingsError: an argument is wrong.
        ReleaseRefused: the compose file or app-compose.json must not be released as it is.
        MalformedEvidence: a file has another format.
    """
    compose = _text(order.compose, MAX_COMPOSE_CHARS)
    compose = _filled_in(compose, order.image)
    compose = _with_pins(compose, order.model_pins)
    environments = list(_environments(compose))
    asked_for = {
        variable[1]
        for _, environment in environments
        for value in environment.values()
        if isinstance(value, str) and (variable := VARIABLE.fullmatch(value))
    }
    app_compose = _app_compose(compose, asked_for, order.app_compose)
    problems = [
        *_file_problems(compose, environments),
        *_app_problems(app_compose, asked_for),
        *(
            f"{service}: {problem}"
            for service, environment in environments
            for problem in _setting_problems(environment)
        ),
    ]
    if problems:
        raise ReleaseRefused("\n  ".join(("this must not be released:", *problems)))
    release = Release(
        type="signal-bot-release",
        v=2,
        version=__version__,
        commit=_commit(order.commit),
        compose_hashes=[hashlib.sha256(app_compose.encode()).hexdigest()],
        compose_file=compose,
        os=list(map(_system, order.os)),
        kms_ids=list(map(_kms_id, order.kms_id)),
    )
    files = {
        "dstack-compose.yaml": compose,
        "app-compose.json": app_compose,
        "release.json": f"{release.model_dump_json(indent=2)}\n",
    }
    _write(order.directory, files)
    return _NEXT.format(
        directory=order.directory,
        version=release.version,
        commit=release.commit,
        compose_hash=release.compose_hashes[0],
        images=f"\n{' ' * 16}".join(dict.fromkeys(images_of(app_compose))),
        environment=environment_check(app_compose, release, is_running=True).message,
        variables=f"\n{' ' * 7}".join(
            f"{name}=" for name in variables_of(read_app_compose(app_compose))
        ),
    )


# Arguments


def _arguments() -> Namespace:
    release = ArgumentParser(prog="python -m scripts.release")
    release.add_argument(
        "directory", type=Path, metavar="DIRECTORY", help="for the files; it is made"
    )
    release.add_argument(
        "--image",
        action="append",
        default=[],
        metavar="NAME=REFERENCE",
        help="for a place that the compose file leaves open; ends in @sha256:…",
    )
    release.add_argument(
        "--os",
        action="append",
        required=True,
        metavar="LABEL=FILE",
        help="what the system measures on one kind of machine, as dstack-mr prints it",
    )
    release.add_argument(
        "--kms-id", action="append", required=True, metavar="HEX", help="a key service's id"
    )
    release.add_argument(
        "--model-pins", type=Path, metavar="FILE", help="as signal-tee-bot attest model makes it"
    )
    release.add_argument("--commit", metavar="HEX", help="of the source; else of this program")
    release.add_argument(
        "--compose",
        type=Path,
        default=COMPOSE_FILE,
        metavar="FILE",
        help="else deploy/dstack-compose.yaml",
    )
    release.add_argument(
        "--app-compose", type=Path, metavar="FILE", help="another tool has made of the compose file"
    )
    return release.parse_args()


def _system(argument: str) -> OsMeasurement:
    label, _, file = argument.partition("=")
    if not file or not re.fullmatch("[ -~]{1,200}", label):
        raise SettingsError("--os: LABEL=FILE, as in 'dstack 0.5.9, 4 CPUs, 8 GB=measured.json'")
    read = decode(_text(Path(file), MAX_MEASUREMENT_BYTES), file)
    measured = read if isinstance(read, dict) else {}
    try:
        known = {name: measured.get(name) for name in REGISTERS}
        return OsMeasurement.model_validate(known | {"label": label})
    except ValidationError:
        expected = f"expects 96 digits from 0 to f in {', '.join(REGISTERS)}"
        raise MalformedEvidence(f"{file}: {expected}") from None


def _kms_id(argument: str) -> str:
    if not re.fullmatch("([0-9a-f]{2}){1,1024}", argument):
        expected = "the id in key_provider_info that dstack's Info shows, digits from 0 to f"
        raise SettingsError(f"--kms-id: {expected}")
    return argument


def _commit(argument: str | None) -> str:
    commit = argument or built_from()
    if not re.fullmatch("[0-9a-f]{7,64}", commit):
        raise SettingsError("--commit: commit of the source, from git rev-parse HEAD")
    return commit


def _text(file: Path, limit: int) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(limit + 1)
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from None
    if len(content) > limit:
        raise MalformedEvidence(f"{file}: has more than {limit} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise MalformedEvidence(f"{file}: is not text") from None


# Deployed files


def _filled_in(compose: str, arguments: Sequence[str]) -> str:
    """Put the images into the open places of the compose file."""
    images = {name: image for name, _, image in (each.partition("=") for each in arguments)}
    places = set(_PLACE.findall(compose))
    expected = "NAME=REFERENCE@sha256:… is expected, with the 64 digits of the image"
    problems = [
        *(f"--image {n}: {expected}" for n, i in images.items() if not PINNED.fullmatch(i)),
        *(f"--image {name}=…: is missing" for name in sorted(places - images.keys())),
        *(f"--image {n}: has no open place in the compose file" for n in images.keys() - places),
    ]
    if problems:
        raise SettingsError(*problems)
    return _PLACE.sub(lambda place: images[place[1]], compose)


def _with_pins(compose: str, file: Path | None) -> str:
    """Write the pins themselves into the open place; nothing would measure a file."""
    has_place = _PLACE_OF_PINS.search(compose) is not None
    if file is None and has_place:
        raise SettingsError("--model-pins: is missing; signal-tee-bot attest model makes the file")
    if file is None:
        return compose
    if not has_place:
        raise SettingsError("--model-pins: has no open place in the compose file")
    pins = ModelPins.parse(_text(file, MAX_PINS_BYTES)).text()
    # Both occur only in texts of the JSON, and mean something else in a compose file.
    quoted = pins.replace("'", r"\u0027").replace("$", r"\u0024")
    return _PLACE_OF_PINS.sub(lambda _: f"'{quoted}'", compose)


def _app_compose(compose: str, asked_for: set[str], made_elsewhere: Path | None) -> str:
    """Return app-compose.json as another tool made it, or as dstack's vmm-cli.py writes it."""
    if made_elsewhere is not None:
        text = _text(made_elsewhere, MAX_APP_COMPOSE_CHARS)
        if read_app_compose(text).get("docker_compose_file") != compose:
            raise ReleaseRefused(
                f"{made_elsewhere}: its docker_compose_file is not the compose file with these"
                " images"
            )
        return text
    fields = {
        "manifest_version": 2,
        "name": APP_NAME,
        "runner": "docker-compose",
        "docker_compose_file": compose,
        "kms_enabled": True,
        "gateway_enabled": False,
        "local_key_provider_enabled": False,
        # Keeps MR_CONFIG_ID in its first form, which every verifier knows. release.json names the
        # key service.
        "key_provider_id": "",
        "public_logs": False,
        "public_sysinfo": False,
        "allowed_envs": sorted(asked_for),
        "no_instance_id": False,
        "secure_time": True,
    }
    return json.dumps(fields, indent=4, ensure_ascii=False)


def _environments(compose: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return each service with the variables that the compose file sets for it."""
    try:
        file = yaml.safe_load(compose)
    except (yaml.YAMLError, RecursionError, ValueError):
        raise MalformedEvidence("the compose file is not YAML") from None
    services = file.get("services") if isinstance(file, dict) else None
    for name, service in services.items() if isinstance(services, dict) else ():
        environment = service.get("environment") if isinstance(service, dict) else None
        if isinstance(environment, list):
            environment = dict(str(item).partition("=")[::2] for item in environment)
        yield str(name), environment if isinstance(environment, dict) else {}


# Refusals


def _file_problems(
    compose: str, environments: Sequence[tuple[str, Mapping[str, Any]]]
) -> Iterator[str]:
    for problem in slot_problems(compose):
        yield f"compose file, {problem}"
    values = [str(value) for _, environment in environments for value in environment.values()]
    if compose.count("$") != sum(VARIABLE.fullmatch(value) is not None for value in values):
        yield "compose file: a dollar sign may stand only in a whole ${NAME} of an environment"


def _app_problems(app_compose: str, asked_for: set[str]) -> Iterator[str]:
    fields = read_app_compose(app_compose)
    problems = list(configuration_problems(fields))
    yield from problems
    if problems:
        return
    try:
        loose = [image for image in images_of(app_compose) if not PINNED.fullmatch(image)]
    except MalformedEvidence as error:
        yield f"compose file: {error}"
        loose = []
    for image in loose:
        yield f"compose file: image {image} has no digest, NAME@sha256:HEX"
    given = set(variables_of(fields))
    for name in sorted(given - asked_for):
        yield f"allowed_envs: {name} has no place in the compose file"
    for name in sorted(asked_for - given):
        yield f"allowed_envs: {name} is missing, which the compose file has a place for"
    kms_enabled = fields.get("kms_enabled", False)
    if fields.get("key_provider", KEY_SERVICE) != KEY_SERVICE or not kms_enabled:
        yield "kms_enabled: without a key service the account and all conversations get lost"


def _setting_problems(environment: Mapping[str, Any]) -> Iterator[str]:
    """Check the settings in the compose file as the bot does at its start."""
    written = {}
    for name, value in environment.items():
        if not isinstance(value, str):
            yield f"{name}: a text in quotes is expected"
        elif DELIMITER in name and not VARIABLE.fullmatch(value):
            written[name] = value
    for name in written:
        if _SECRET.fullmatch(name):
            yield f"{name}: is a secret, and the compose file is published"
    if not written.get(_PINS, "{").startswith("{"):
        yield f"{_PINS}: nothing measures a file; the pins themselves are expected"
    try:
        settings_of(_SOME_NUMBER | written)
    except SettingsError as error:
        yield from error.problems


def _write(directory: Path, files: Mapping[str, str]) -> None:
    try:
        directory.mkdir(parents=True)
        for name, text in files.items():
            (directory / name).write_bytes(text.encode())
    except FileExistsError:
        raise SettingsError(f"{directory}: exists; a release is never overwritten") from None
    except OSError as error:
        raise SettingsError(f"{directory}: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
