"""The published release: what a bundle's code, system and keys are compared with.

A release file is JSON, published with the source by whoever builds the bot:

    {"type": "signal-bot-release", "v": 1,
     "version": "1.2.0", "commit": "0123abcd",
     "compose_hashes": ["<SHA-256 of app-compose.json, hex>"],
     "images": ["registry.example/signal-tee-bot@sha256:<hex>"],
     "os": [{"label": "dstack 0.5.4, 4 CPUs, 8 GB",
             "mrtd": "<48 bytes, hex>", "rtmr0": "...", "rtmr1": "...", "rtmr2": "..."}],
     "kms_ids": ["<SubjectPublicKeyInfo of the key service's CA, hex>"]}

It is as good as the place where it was found; a bot must never be asked for it.
"""

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from bot.attestation.checks import Check, claimed, failed, not_checked, proven, proven_if
from bot.attestation.compose import images_of
from bot.attestation.errors import MalformedEvidence
from bot.attestation.event_log import KEY_SERVICE, BootClaims
from bot.attestation.quote import TdQuote
from bot.attestation.strict_json import StrictModel, VersionOne, read
from bot.attestation.systems import Label, OsMeasurement
from bot.attestation.tdx_guest import TdFindings

MAX_RELEASE_BYTES: Final = 1024 * 1024

_NO_RELEASE: Final = "there was no release file to compare with"
_WITHOUT_KEY_SERVICE: Final = {
    "none": "no key service: the bot loses its keys with every restart",
    "tpm": "no key service: the bot's keys belong to one machine",
    "local": "no key service: the bot's keys belong to one machine and one version of the code",
}

_Hash = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
_Image = Annotated[str, StringConstraints(pattern="^[0-9A-Za-z./:_-]{1,300}@sha256:[0-9a-f]{64}$")]
_KeyId = Annotated[str, StringConstraints(pattern="^([0-9a-f]{2}){1,1024}$")]


class Release(StrictModel):
    """One release, as it is published; see the module's docstring."""

    type: Literal["signal-bot-release"]
    v: VersionOne
    version: Label
    commit: Label
    compose_hashes: Annotated[list[_Hash], Field(min_length=1, max_length=1000)]
    images: Annotated[list[_Image], Field(min_length=1, max_length=100)]
    os: Annotated[list[OsMeasurement], Field(min_length=1, max_length=1000)]
    kms_ids: Annotated[list[_KeyId], Field(max_length=100)]

    @classmethod
    def parse(cls, file: bytes) -> "Release":
        """Read a release file.

        Raises:
            MalformedEvidence: it is not a release file, of a newer version, or larger than 1 MiB.
        """
        if len(file) > MAX_RELEASE_BYTES:
            raise MalformedEvidence("the release is larger than a release can be")
        return read(cls, file, "the release")


def release_checks(
    findings: TdFindings, release: Release | None, *, app_compose: str
) -> tuple[Check, ...]:
    """Compare what started with what was published: checks "release", "os", "key_provider"."""
    if release is None:
        return _without_release(findings.boot)
    return (
        _release_check(findings.boot, release, app_compose),
        _os_check(findings.quote, release),
        _key_provider_check(findings.boot, release),
    )


def _without_release(boot: BootClaims | None) -> tuple[Check, ...]:
    compare = f"; compare the compose hash yourself: {boot.compose_hash.hex()}" if boot else ""
    return (
        not_checked("release", f"{_NO_RELEASE}{compare}"),
        not_checked("os", f"{_NO_RELEASE}; an unknown system may say anything of the code on it"),
        _key_provider_without_release(boot),
    )


def _key_provider_without_release(boot: BootClaims | None) -> Check:
    if boot is None or boot.key_provider == KEY_SERVICE:
        return not_checked("key_provider", _NO_RELEASE)
    return claimed("key_provider", f"beware: {_no_key_service(boot)}")


def _release_check(boot: BootClaims | None, release: Release, app_compose: str) -> Check:
    if boot is None:
        return not_checked("release", "which code started cannot be read", asked=True)
    compose_hash = boot.compose_hash.hex()
    name = f"release {release.version} (commit {release.commit})"
    if compose_hash not in release.compose_hashes:
        return failed("release", f"another code runs than {name}: its compose hash {compose_hash}")
    return proven_if(
        _images(app_compose) == set(release.images),
        "release",
        f"what runs is {name}, compose hash {compose_hash}",
        f"the compose hash is that of {name}, but the images that it starts are not",
    )


def _images(app_compose: str) -> set[str]:
    try:
        return set(images_of(app_compose))
    except MalformedEvidence:
        return set()


def _os_check(quote: TdQuote | None, release: Release) -> Check:
    if quote is None:
        return not_checked("os", "which system started cannot be read", asked=True)
    for system in release.os:
        if system.matches(quote):
            return proven("os", f"the system below the code is a published one: {system.label}")
    return failed("os", "the system below the code is none of the published ones")


def _key_provider_check(boot: BootClaims | None, release: Release) -> Check:
    if boot is None:
        return not_checked("key_provider", "where its keys come from cannot be read", asked=True)
    if boot.key_provider != KEY_SERVICE:
        return failed("key_provider", f"not the published key service: {_no_key_service(boot)}")
    return proven_if(
        boot.key_provider_id in release.kms_ids,
        "key_provider",
        "the bot's keys come from the published key service",
        "the bot's keys come from another key service than the published one",
    )


def _no_key_service(boot: BootClaims) -> str:
    for name, words in _WITHOUT_KEY_SERVICE.items():
        if boot.key_provider.startswith(name):
            return words
    return "the bot's keys come from a place that this program does not know"
