"""Only an argument that tests pass can make the program trust another root."""

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
PASSED_ON = {"trust", "self.trust", "identities.trust"}
"""The last is about the keys of people."""


def nodes() -> Iterator[ast.AST]:
    for source in SOURCES:
        yield from ast.walk(ast.parse(source.read_text()))


def test_the_program_makes_one_trust_and_only_passes_it_on() -> None:
    calls = [node for node in nodes() if isinstance(node, ast.Call)]
    made = [ast.unparse(call) for call in calls if ast.unparse(call.func).endswith("Trust")]
    given = [ast.unparse(k.value) for call in calls for k in call.keywords if k.arg == "trust"]
    assert made == ["Trust()"]
    assert set(given) <= PASSED_ON
    assert Trust() == REAL
    assert (REAL.intel_root, REAL.tls) == (None, None)


def test_without_an_argument_it_is_the_real_one() -> None:
    defaults = {
        ast.unparse(default)
        for one in nodes()
        if isinstance(one, ast.arguments)
        for argument, default in (
            *zip(one.kwonlyargs, one.kw_defaults, strict=True),
            *zip(one.args[::-1], one.defaults[::-1], strict=False),
        )
        if argument.arg == "trust" and default is not None
    }
    assert defaults == {"REAL"}


def test_no_setting_and_no_variable_names_a_root_or_a_trusted_service() -> None:
    words = ("ROOT", "TRUST", "CERT", "NRAS", "NVIDIA", "INTEL", "__CA_", "INSECURE", "SKIP")
    # SIGNAL__TRUST is about the keys of people; no part of the proof knows of it.
    names = [name for name in setting_names() if name != "SIGNAL__TRUST"]
    assert not [name for name in names if any(word in name for word in words)]
    proof = [source.read_text() for source in SOURCES if "attestation" in source.parts]
    assert not [text for text in proof if re.search(r"\bos\.environ|getenv", text)]


def test_no_variable_adds_a_certificate_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = authorities(new_tls_context())
    empty = tmp_path / "own.pem"
    empty.write_text("")
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(name, str(empty))
    assert authorities(new_tls_context()) == before


def authorities(context: ssl.SSLContext) -> list[bytes]:
    return context.get_ca_certs(binary_form=True)
