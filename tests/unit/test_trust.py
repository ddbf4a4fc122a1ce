"""Nothing but an argument, which only tests give, makes the program trust another root."""

import ast
import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

import bot
from bot.attestation.trust import REAL, Trust
from bot.config.loading import setting_names
from tools.http import new_tls_context

SOURCES = sorted(Path(bot.__file__).parent.rglob("*.py"))
PASSED_ON = {"trust", "self._trust", "self.trust", "start.trust", "REAL"}
OF_KEYS = {"identities.trust"}
"""Trusts the key of a person, which is another thing of that name."""
HOME = Path("attestation", "trust.py")


def calls(name: str) -> Iterator[tuple[Path, ast.Call]]:
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name:
                yield source.relative_to(Path(bot.__file__).parent), node


def test_the_only_trust_that_the_program_makes_is_the_real_one() -> None:
    made = [(path, ast.unparse(call)) for path, call in calls("Trust")]
    assert made == [(HOME, "Trust()")]
    assert Trust() == REAL
    assert REAL.intel_root is None
    assert REAL.tls is None


def test_trust_is_only_ever_passed_on_as_it_came() -> None:
    given = [
        ast.unparse(keyword.value)
        for source in SOURCES
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "trust"
    ]
    assert given
    assert set(given) <= PASSED_ON | OF_KEYS


def test_without_an_argument_it_is_the_real_one() -> None:
    defaults = []
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            arguments = node.args
            pairs = [*zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
            positional = [*arguments.posonlyargs, *arguments.args][::-1]
            pairs += zip(positional, arguments.defaults[::-1], strict=False)
            defaults += [ast.unparse(d) for a, d in pairs if a.arg == "trust" and d is not None]
    assert defaults
    assert set(defaults) == {"REAL"}


def test_no_setting_names_a_root_or_a_trusted_service() -> None:
    words = ("ROOT", "TRUST", "CERT", "NRAS", "NVIDIA", "INTEL", "__CA_", "INSECURE", "SKIP")
    # SIGNAL__TRUST is about the keys of people; no part of the proof knows of it.
    names = [name for name in setting_names() if name != "SIGNAL__TRUST"]
    assert not [name for name in names if any(word in name for word in words)]


def test_no_part_of_the_proof_reads_the_environment() -> None:
    readers = [
        source.name
        for source in SOURCES
        if "attestation" in source.parts and re.search(r"\bos\.environ|getenv", source.read_text())
    ]
    assert readers == []


def test_no_variable_adds_a_certificate_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {authority["serialNumber"] for authority in authorities(new_tls_context())}
    empty = tmp_path / "own.pem"
    empty.write_text("")
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(name, str(empty))
    after = {authority["serialNumber"] for authority in authorities(new_tls_context())}
    assert after == before


def authorities(context: ssl.SSLContext) -> list[dict[str, str]]:
    return [dict(found) for found in context.get_ca_certs()]  # type: ignore[arg-type]
