"""`signal-tee-bot release`: from a compose file and images, what is deployed and what is published.

Three files, the same ones for the same input:

- dstack-compose.yaml: the compose file with the images in it;
- app-compose.json: what dstack starts and measures, to be deployed byte for byte;
- release.json: what `signal-tee-bot verify --release` compares a bot with.
"""

import hashlib
import json
import re
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

from bot import __version__, build
from bot.attestation.compose import MAX_APP_COMPOSE_CHARS, MAX_COMPOSE_CHARS, PINNED, images_of
from bot.attestation.compose_grammar import environments
from bot.attestation.errors import MalformedEvidence
from bot.attestation.event_log import KEY_SERVICE
from bot.attestation.near_ai.pins import MAX_PINS_BYTES, ModelPins
from bot.attestation.operator_inputs import configuration_problems, environment_check
from bot.attestation.release import Release
from bot.attestation.strict_json import read
from bot.attestation.systems import OsMeasurement
from bot.cli.exit_codes import OK
from bot.config.loading import settings_of
from bot.config.sources import DELIMITER
from bot.errors import BotError, SettingsError

COMPOSE_FILE: Final = Path("deploy/dstack-compose.yaml")
APP_NAME: Final = "signal-tee-bot"
MAX_MEASUREMENT_BYTES: Final = 64 * 1024

_UNRELEASED: Final = "@sha256:unreleased"
_PLACE: Final = re.compile(rf"(?<=image: )([a-z0-9._/-]+){_UNRELEASED}$", re.MULTILINE)
_PINS: Final = "ATTESTATION__MODEL_PINS"
_PLACE_OF_PINS: Final = re.compile(rf"(?<={_PINS}: )unreleased$", re.MULTILINE)
_VARIABLE: Final = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")
"""What Docker Compose fills in from outside."""
_SECRET: Final = re.compile(r"\w+(KEY|PASSWORD|SECRET|TOKEN)")
_KMS_ID: Final = re.compile("([0-9a-f]{2}){1,1024}")
_SOME_NUMBER: Final = {"SIGNAL__PHONE_NUMBER": "+15550100000"}
"""The one required setting, whose value comes from outside."""

_NEXT: Final = """\
Release {version} (commit {commit}) is in {directory}:

  compose hash  {compose_hash}
  images        {images}
  verify says   {environment}

Next:
  1. Deploy app-compose.json as it is: one byte more, and its hash is another. To a tool that writes
     its own, give dstack-compose.yaml; then run this again, into another folder, with
     --app-compose and what that tool wrote.
  2. Give the encrypted environment all of these, in this order, even those that stay empty; some
     tools make another app-compose.json of any other list:
       {variables}
  3. Publish the three files with the source, where others would notice a change."""


class ReleaseRefused(BotError):
    """What was to be released would not be proven, or it is up to its operator."""


@dataclass(frozen=True, slots=True)
class Order:
    """What somebody wants released.

    Attributes:
        directory: of the three files; it is made.
        compose: the compose file.
        images: for the places that the compose file leaves open, each NAME=REFERENCE@sha256:….
        systems: what is measured below the application, each LABEL=FILE, with the file as
            `dstack-mr measure --json` prints it.
        kms_ids: of the key services that may have the keys, in hex.
        commit: of the source; None: of this program.
        app_compose: what another tool has made of the compose file; None: it is made here.
        model_pins: the file of pins for the place that the compose file leaves open.
    """

    directory: Path
    compose: Path
    images: Sequence[str]
    systems: Sequence[str]
    kms_ids: Sequence[str]
    commit: str | None
    app_compose: Path | None
    model_pins: Path | None = None


class _Measured(BaseModel):
    mrtd: str
    rtmr0: str
    rtmr1: str
    rtmr2: str


class _AppCompose(BaseModel):
    docker_compose_file: str
    kms_enabled: bool = False
    key_provider: str | None = None
    allowed_envs: tuple[str, ...] = ()


def run(arguments: Namespace) -> int:
    """Make a release; return the exit code."""
    order = Order(
        directory=arguments.directory,
        compose=arguments.compose or COMPOSE_FILE,
        images=arguments.image,
        systems=arguments.os,
        kms_ids=arguments.kms_id,
        commit=arguments.commit,
        app_compose=arguments.app_compose,
        model_pins=arguments.model_pins,
    )
    print(make_release(order))
    return OK


def make_release(order: Order) -> str:
    """Write the three files of a release, and return what to do with them.

    Raises:
        SettingsError: an argument is wrong.
        ReleaseRefused: the compose file or app-compose.json must not be released as it is.
        MalformedEvidence: a file is not what it should be.
    """
    compose = _filled_in(_text(order.compose, MAX_COMPOSE_CHARS), _images(order.images))
    compose = _with_pins(compose, order.model_pins)
    app_compose = _app_compose(compose, order.app_compose)
    _require_fitness(compose, app_compose)
    release = _release(order, app_compose)
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
        images=f"\n{' ' * 16}".join(release.images),
        environment=environment_check(app_compose, is_running=True).message,
        variables=f"\n{' ' * 7}".join(f"{name}=" for name in _app(app_compose).allowed_envs),
    )


# Arguments


def _images(arguments: Iterable[str]) -> dict[str, str]:
    images = {name: image for name, _, image in (each.partition("=") for each in arguments)}
    loose = [name for name, image in images.items() if not PINNED.fullmatch(image)]
    if loose:
        expected = "NAME=REFERENCE@sha256:… is expected, with the 64 digits of the image"
        raise SettingsError(*(f"--image {name}: {expected}" for name in loose))
    return images


def _system(argument: str) -> OsMeasurement:
    label, _, file = argument.partition("=")
    if not file or not re.fullmatch("[ -~]{1,200}", label):
        raise SettingsError("--os: LABEL=FILE, as in 'dstack 0.5.9, 4 CPUs, 8 GB=measured.json'")
    measured = read(_Measured, _text(Path(file), MAX_MEASUREMENT_BYTES), file)
    try:
        return OsMeasurement(label=label, **measured.model_dump())
    except ValidationError as error:
        wrong = ", ".join(str(problem["loc"][0]) for problem in error.errors())
        raise MalformedEvidence(f"{file}: 96 digits from 0 to f are expected in {wrong}") from None


def _kms_id(argument: str) -> str:
    if not _KMS_ID.fullmatch(argument):
        expected = "the id in key_provider_info that dstack's Info shows, digits from 0 to f"
        raise SettingsError(f"--kms-id: {expected}")
    return argument


def _commit(argument: str | None) -> str:
    commit = argument or build.commit()
    if not re.fullmatch("[0-9a-f]{7,64}", commit):
        raise SettingsError("--commit: which one of the source; git rev-parse HEAD says it")
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
        raise MalformedEvidence(f"{file}: is no text") from None


# What is deployed


def _filled_in(compose: str, images: Mapping[str, str]) -> str:
    """Put the images where the compose file leaves a place open."""
    places = set(_PLACE.findall(compose))
    problems = [
        *(f"--image {name}=…: is missing" for name in sorted(places - images.keys())),
        *(
            f"--image {name}: has no open place in the compose file"
            for name in images.keys() - places
        ),
    ]
    if problems:
        raise SettingsError(*problems)
    return _PLACE.sub(lambda place: images[place[1]], compose)


def _with_pins(compose: str, file: Path | None) -> str:
    """Write the pins themselves where the compose file leaves a place: nothing measures a file."""
    has_place = _PLACE_OF_PINS.search(compose) is not None
    if file is None and has_place:
        raise SettingsError("--model-pins: is missing; signal-tee-bot attest model makes the file")
    if file is None:
        return compose
    if not has_place:
        raise SettingsError("--model-pins: has no open place in the compose file")
    pins = ModelPins.parse(_text(file, MAX_PINS_BYTES)).text()
    # These stand in texts of the JSON alone; a compose file's text may hold neither.
    quoted = pins.replace("'", r"\u0027").replace("$", r"\u0024")
    return _PLACE_OF_PINS.sub(lambda _: f"'{quoted}'", compose)


def _app_compose(compose: str, made_elsewhere: Path | None) -> str:
    if made_elsewhere is None:
        return _rendered(compose)
    text = _text(made_elsewhere, MAX_APP_COMPOSE_CHARS)
    if _app(text, str(made_elsewhere)).docker_compose_file != compose:
        raise ReleaseRefused(
            f"{made_elsewhere}: its docker_compose_file is not the compose file with these images"
        )
    return text


def _rendered(compose: str) -> str:
    """Return app-compose.json as dstack's vmm-cli.py writes it.

    The empty `key_provider_id` keeps MR_CONFIG_ID in its first form, which every verifier knows;
    which key service it has to be, release.json says.
    """
    fields = {
        "manifest_version": 2,
        "name": APP_NAME,
        "runner": "docker-compose",
        "docker_compose_file": compose,
        "kms_enabled": True,
        "gateway_enabled": False,
        "local_key_provider_enabled": False,
        "key_provider_id": "",
        "public_logs": False,
        "public_sysinfo": False,
        "allowed_envs": sorted(_variables(compose)),
        "no_instance_id": False,
        "secure_time": True,
    }
    return json.dumps(fields, indent=4, ensure_ascii=False)


def _app(text: str, name: str = "app-compose.json") -> _AppCompose:
    return read(_AppCompose, text, name)


def _variables(compose: str) -> set[str]:
    """Return the variables that Docker Compose fills in."""
    values = (value for _, settings in environments(compose) for value in settings.values())
    return {found[1] for value in values if (found := _VARIABLE.fullmatch(value))}


# What must not be released


def _require_fitness(compose: str, app_compose: str) -> None:
    problems = [
        *configuration_problems(app_compose),
        *_deployment_problems(_app(app_compose), _variables(compose)),
        *(
            f"{service}: {problem}"
            for service, settings in environments(compose)
            for problem in _setting_problems(settings)
        ),
    ]
    if problems:
        raise ReleaseRefused("\n  ".join(("this must not be released:", *problems)))


def _deployment_problems(app: _AppCompose, asked_for: set[str]) -> Iterator[str]:
    for name in sorted(set(app.allowed_envs) - asked_for):
        yield f"allowed_envs: {name} has no place in the compose file"
    for name in sorted(asked_for - set(app.allowed_envs)):
        yield f"allowed_envs: {name} is missing, which the compose file has a place for"
    if (app.key_provider or KEY_SERVICE) != KEY_SERVICE or not app.kms_enabled:
        yield "kms_enabled: without a key service the account and all conversations get lost"


def _setting_problems(settings: Mapping[str, str]) -> Iterator[str]:
    """Try the settings that are written there, as the bot does at its start."""
    written = {
        name: value
        for name, value in settings.items()
        if DELIMITER in name and not _VARIABLE.fullmatch(value)
    }
    for name in written:
        if _SECRET.fullmatch(name):
            yield f"{name}: is a secret, and the compose file is published"
    try:
        settings_of(_SOME_NUMBER | written)
    except SettingsError as error:
        yield from error.problems


# What is published


def _release(order: Order, app_compose: str) -> Release:
    return Release(
        type="signal-bot-release",
        v=1,
        version=__version__,
        commit=_commit(order.commit),
        compose_hashes=[hashlib.sha256(app_compose.encode()).hexdigest()],
        images=list(dict.fromkeys(images_of(app_compose))),
        os=list(map(_system, order.systems)),
        kms_ids=list(map(_kms_id, order.kms_ids)),
    )


def _write(directory: Path, files: Mapping[str, str]) -> None:
    try:
        directory.mkdir(parents=True)
        for name, text in files.items():
            (directory / name).write_bytes(text.encode())
    except FileExistsError:
        raise SettingsError(f"{directory}: is there, and no release is overwritten") from None
    except OSError as error:
        raise SettingsError(f"{directory}: {error.strerror}") from None
