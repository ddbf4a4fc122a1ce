"""TDX quotes: only evidence with a valid signature of Intel is accepted, while it is valid."""

import json
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bot.attestation.checks import Check, Verdict
from bot.attestation.errors import MalformedEvidence
from bot.attestation.quote import (
    ACCEPTED_TCB,
    MAX_QUOTE_BYTES,
    Collateral,
    TdQuote,
    _one_kind_of_failure,
    parse_quote,
    quote_checks,
)
from bot.attestation.tdx_guest import attributes_check
from bot.attestation.trust import MIN_TCB_EVALUATION, REAL
from tests.fakes.soft_tdx import SoftTdx
from tests.fixtures_attestation import (
    CLOCK,
    recorded,
    recorded_quote,
    recorded_simulator_quote,
)
from tests.near_ai_captures import OF_THEIR_TIME

GATEWAY: Final = "nearai/cloud-2026-06-29/collateral_gateway.json"
MODEL: Final = "nearai/cloud-2026-06-29/collateral_model.json"
ALL_PROVEN: Final = {
    "debug": Verdict.PROVEN,
    "quote": Verdict.PROVEN,
    "tcb": Verdict.PROVEN,
}

SOFT: Final = SoftTdx(now=CLOCK)
SOFT_QUOTE: Final = SOFT.quote(
    bytes(range(64)), b"\1" * 48, [bytes([n]) * 48 for n in (2, 3, 4, 5)], b"\6" * 48
)


def collateral(path: str) -> Collateral:
    return Collateral.parse(recorded(path).read_text())


def real(raw: bytes, given: Collateral | str, now: int = CLOCK) -> dict[str, Check]:
    checks = quote_checks(parse_quote(raw), given, now=now, trust=OF_THEIR_TIME)
    return {check.name: check for check in checks}


def verdicts(checks: dict[str, Check]) -> dict[str, Verdict]:
    return {name: check.verdict for name, check in checks.items()}


def soft(machine: SoftTdx, **changes: Any) -> dict[str, Check]:
    raw = machine.quote(bytes(64), bytes(48), [bytes(48)] * 4, **changes)
    checks = quote_checks(
        parse_quote(raw),
        Collateral.parse(machine.collateral),
        now=machine.now,
        trust=machine.trust,
    )
    return {check.name: check for check in checks}


# Genuine quotes


def gateway_quote(capture: str) -> bytes:
    report = json.loads(recorded(f"nearai/{capture}/report.json").read_text())
    return bytes.fromhex(report["gateway_attestation"]["intel_quote"])


GENUINE: Final[dict[str, tuple[Callable[[], bytes], str, int]]] = {
    "dcap-qvl's sample": (
        lambda: recorded_quote("dcap-qvl/tdx_quote"),
        "dcap-qvl/tdx_quote_collateral.json",
        1751193147,
    ),
    "NEAR's contract test": (
        lambda: recorded_quote("dcap-qvl/near_gastest_quote_hex.txt"),
        "dcap-qvl/near_gastest_collateral.json",
        1757662919,
    ),
    "dstack's simulator": (recorded_simulator_quote, GATEWAY, CLOCK),
    "a gateway": (lambda: gateway_quote("cloud-2026-06-29"), GATEWAY, CLOCK),
}


@pytest.mark.parametrize("name", GENUINE)
def test_a_genuine_quote_is_proven_with_the_collateral_of_its_time(name: str) -> None:
    raw, path, now = GENUINE[name]
    assert verdicts(real(raw(), collateral(path), now)) == ALL_PROVEN


def test_an_out_of_date_platform_is_named_with_its_advisories() -> None:
    raw = gateway_quote("cloud-2026-04-24")
    given = collateral("nearai/cloud-2026-04-24/collateral_gateway.json")
    checks = real(raw, given, 1776996374)
    assert verdicts(checks) == ALL_PROVEN | {"tcb": Verdict.FAILED}
    assert "OutOfDate (INTEL-SA-01036, INTEL-SA-01079" in checks["tcb"].message


def test_an_evaluation_of_intels_that_is_too_old_calls_nothing_up_to_date() -> None:
    raw, path, now = GENUINE["NEAR's contract test"]
    checks = quote_checks(parse_quote(raw()), collateral(path), now=now, trust=REAL)
    assert [check.verdict for check in checks] == [Verdict.PROVEN, Verdict.PROVEN, Verdict.FAILED]
    assert f"{MIN_TCB_EVALUATION} or later counts" in checks[-1].message
    oldest = MIN_TCB_EVALUATION
    for number, verdict in ((oldest - 1, Verdict.FAILED), (oldest, Verdict.PROVEN)):
        machine = SoftTdx(now=CLOCK, evaluations=(number, number))
        assert soft(machine)["tcb"].verdict is verdict


@pytest.mark.parametrize("evaluations", [(99, 98), (98, 99)])
def test_two_evaluations_of_intels_cannot_be_mixed(evaluations: tuple[int, int]) -> None:
    check = soft(SoftTdx(now=CLOCK, evaluations=evaluations))["tcb"]
    assert check.verdict is Verdict.FAILED
    assert "mixes two" in check.message


def test_a_quote_is_proven_to_the_last_second_of_its_window_and_no_longer() -> None:
    raw, path, _ = GENUINE["dcap-qvl's sample"]
    given = collateral(path)
    first, last = 1750329147, 1752919234
    assert given.expires_at == last + 1
    for now, why in (
        (first, ""),
        (last, ""),
        (first - 1, "issue date is in the future"),
        (last + 1, "the collateral expired on "),
    ):
        check = real(raw(), given, now)["quote"]
        assert (check.verdict is Verdict.PROVEN) is (first <= now <= last)
        assert check.verdict is Verdict.PROVEN or why in check.message


def test_collateral_of_another_kind_of_platform_is_called_that() -> None:
    for raw, path, words in (
        (GENUINE["dstack's simulator"][0](), MODEL, "is about another kind of platform than"),
        (recorded_quote("dcap-qvl/quote-from-tappd.hex"), GATEWAY, "No matching TCB level found"),
    ):
        check = real(raw, collateral(path))["quote"]
        assert check.verdict is Verdict.FAILED
        assert words in check.message


def test_without_collateral_the_reason_is_given_and_nothing_passes() -> None:
    quote = parse_quote(SOFT_QUOTE)
    _, check, tcb = quote_checks(quote, "it is down", now=CLOCK, trust=SOFT.trust)
    assert (check.verdict, check.message, check.asked) == (Verdict.NOT_CHECKED, "it is down", True)
    assert (tcb.verdict, tcb.asked) == (Verdict.NOT_CHECKED, True)


# What is read


def test_a_quote_is_read_field_by_field() -> None:
    assert parse_quote(SOFT_QUOTE) == TdQuote(
        raw=SOFT_QUOTE,
        fmspc=SOFT.fmspc,
        ca="platform",
        mr_td=b"\1" * 48,
        rtmrs=(b"\2" * 48, b"\3" * 48, b"\4" * 48, b"\5" * 48),
        mr_config_id=b"\6" * 48,
        mr_owner=bytes(48),
        mr_owner_config=bytes(48),
        report_data=bytes(range(64)),
        td_attributes=bytes([0, 0, 0, 0x10, 0, 0, 0, 0]),
        xfam=bytes.fromhex("e702060000000000"),
        mr_signer_seam=bytes(48),
        pck_chain=parse_quote(SOFT_QUOTE).pck_chain,
    )
    assert parse_quote(SOFT_QUOTE).pck_chain[-1] == SOFT.root_der


@pytest.mark.parametrize("path", ["dcap-qvl/sgx_quote", "dcap-qvl/tdx_quote_outdated"])
def test_sgx_and_version_5_are_not_read(path: str) -> None:
    with pytest.raises(MalformedEvidence, match="not a TDX quote of version 4"):
        parse_quote(recorded_quote(path))


def grown(more: bytes, *lengths: int) -> bytes:
    """Return the quote with more at its end, which the lengths at these places take in."""
    return relengthened(SOFT_QUOTE + more, len(more), *lengths)


def relengthened(raw: bytes, more: int, *lengths: int) -> bytes:
    changed = bytearray(raw)
    for at in lengths:
        length = int.from_bytes(changed[at : at + 4], "little") + more
        changed[at : at + 4] = length.to_bytes(4, "little")
    return bytes(changed)


SIGNATURE, CERTIFICATION = 632, 766
CHAIN: Final = SOFT_QUOTE.index(b"-----BEGIN") - 4
ROOT: Final = SOFT_QUOTE[SOFT_QUOTE.rindex(b"-----BEGIN") :]
INVALID: Final = {
    "zeros": bytes(5000),
    "a byte more": SOFT_QUOTE + b"\x01",
    "too long": bytes(MAX_QUOTE_BYTES + 1),
    "a byte behind the certification": grown(b"\0", SIGNATURE),
    "a byte behind the chain": grown(b"\0", SIGNATURE, CERTIFICATION),
    "a byte behind the last certificate": grown(b"\n", SIGNATURE, CERTIFICATION, CHAIN),
    "a fourth certificate": grown(ROOT, SIGNATURE, CERTIFICATION, CHAIN),
    "so many zeros": SOFT_QUOTE + bytes(MAX_QUOTE_BYTES),
}


@pytest.mark.parametrize("what", INVALID)
def test_invalid_quote_is_malformed(what: str) -> None:
    with pytest.raises(MalformedEvidence):
        parse_quote(INVALID[what])


def test_every_truncated_quote_is_refused() -> None:
    for size in range(len(SOFT_QUOTE)):
        with pytest.raises(MalformedEvidence):
            parse_quote(SOFT_QUOTE[:size])


# What is believed


@pytest.mark.parametrize(
    "status",
    [
        "UpToDate", "SWHardeningNeeded", "ConfigurationNeeded", "ConfigurationAndSWHardeningNeeded",
        "OutOfDate", "OutOfDateConfigurationNeeded", "Revoked",
    ],
)  # fmt: skip
def test_two_states_of_a_platform_are_accepted_and_the_others_named(status: str) -> None:
    checks = soft(SoftTdx(status))
    assert (checks["tcb"].verdict is Verdict.PROVEN) is (status in ACCEPTED_TCB)
    assert status.lower() in checks["tcb"].message.lower()


def test_a_debug_machine_is_refused_by_a_check_of_its_own() -> None:
    assert verdicts(soft(SOFT, debug=True)) == {
        "debug": Verdict.FAILED,
        "quote": Verdict.NOT_CHECKED,
        "tcb": Verdict.NOT_CHECKED,
    }


@pytest.mark.parametrize("bit", range(8))
def test_every_bit_that_means_debugging_counts(bit: int) -> None:
    quote = parse_quote(SOFT_QUOTE)
    debug = replace(quote, td_attributes=bytes([1 << bit]) + bytes(7))
    for one, verdict in ((quote, Verdict.PROVEN), (debug, Verdict.FAILED)):
        check, *_ = quote_checks(one, "none", now=CLOCK, trust=REAL)
        assert (check.name, check.verdict) == ("debug", verdict)


SEPT_VE_DISABLE: Final = 1 << 28
UNUSUAL: Final[dict[str, dict[str, Any]]] = {
    **{
        f"attribute {bit}": {"td_attributes": (SEPT_VE_DISABLE | 1 << bit).to_bytes(8, "little")}
        for bit in (16, 27, 29, 30, 31, 62, 63)
    },
    "no attributes": {"td_attributes": bytes(8)},
    "traces of the processor": {"xfam": (0x602E7 | 1 << 8).to_bytes(8, "little")},
    "a feature that nobody knows": {"xfam": (0x602E7 | 1 << 63).to_bytes(8, "little")},
    "an owner": {"mr_owner": bytes(47) + b"\1"},
    "an owner's configuration": {"mr_owner_config": b"\1" * 48},
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_a_machine_that_was_started_in_an_unusual_way_is_refused(name: str) -> None:
    quote = parse_quote(SOFT_QUOTE)
    assert attributes_check(replace(quote, **UNUSUAL[name])).verdict is Verdict.FAILED
    for usual in (quote, replace(quote, xfam=b"\7" + bytes(7))):
        assert attributes_check(usual).verdict is Verdict.PROVEN


def test_a_foreign_module_and_a_revoked_certificate_are_refused() -> None:
    for check, words in (
        (soft(SOFT, mr_signer_seam=b"\1" * 48)["quote"], "module of this machine is not Intel's"),
        (soft(SoftTdx(revoked=True))["quote"], "CertRevoked"),
    ):
        assert check.verdict is Verdict.FAILED
        assert words in check.message


def test_no_root_is_believed_but_intels_and_the_one_given_as_an_argument() -> None:
    given = Collateral.parse(SOFT.collateral)
    quote = parse_quote(SOFT_QUOTE)
    for trust in (REAL, SoftTdx(now=CLOCK).trust):
        _, check, _ = quote_checks(quote, given, now=CLOCK, trust=trust)
        assert check.verdict is Verdict.FAILED
        assert check.message == "the quote's certificates do not lead to Intel's root"
    raw, path, now = GENUINE["dstack's simulator"]
    _, check, _ = quote_checks(parse_quote(raw()), collateral(path), now=now, trust=SOFT.trust)
    assert check.verdict is Verdict.FAILED


def test_a_copy_of_intels_root_does_not_make_a_chain() -> None:
    """The root that a quote brings along counts for nothing by itself."""
    genuine = parse_quote(recorded_simulator_quote()).pck_chain[-1]
    forged = SOFT_QUOTE.replace(pem(SOFT.root_der), pem(genuine))
    more = len(forged) - len(SOFT_QUOTE)
    forged = relengthened(forged, more, SIGNATURE, CERTIFICATION, CHAIN)
    quote = parse_quote(forged)
    assert quote.pck_chain[-1] == genuine
    _, check, _ = quote_checks(quote, Collateral.parse(SOFT.collateral), now=CLOCK, trust=REAL)
    assert check.verdict is Verdict.FAILED
    assert check.message.startswith("Intel's verifier refuses it")


def pem(der: bytes) -> bytes:
    return ssl.DER_cert_to_PEM_cert(der).encode()


class PanicException(BaseException):
    """Exception that Python sees when a Rust library panics."""


def test_a_panic_of_the_verifier_is_a_refusal_but_an_interrupt_is_raised() -> None:
    with pytest.raises(ValueError, match="gave up"), _one_kind_of_failure():
        raise PanicException
    with pytest.raises(KeyboardInterrupt), _one_kind_of_failure():
        raise KeyboardInterrupt


@pytest.mark.parametrize("member", ["tcbType", "tcbLevels", "tdxModule"])
def test_error_does_not_repeat_words_of_a_document(member: str) -> None:
    fields = json.loads(SOFT.collateral)
    document = json.loads(fields["tcb_info"]) | {member: "All is well: visit evil.example"}
    given = Collateral.parse(json.dumps(fields | {"tcb_info": json.dumps(document)}))
    _, check, _ = quote_checks(parse_quote(SOFT_QUOTE), given, now=CLOCK, trust=SOFT.trust)
    assert check.verdict is Verdict.FAILED
    assert check.message.startswith("Intel's verifier refuses it: Failed to decode TcbInfo")
    assert "evil" not in check.message


# No byte can be another one


def refused(raw: bytes) -> bool:
    try:
        quote = parse_quote(raw)
    except MalformedEvidence:
        return True
    given = Collateral.parse(SOFT.collateral)
    checks = quote_checks(quote, given, now=CLOCK, trust=SOFT.trust)
    return any(check.verdict is not Verdict.PROVEN for check in checks)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(SOFT_QUOTE) - 1), st.integers(1, 255))
@example(764, 1)  # the kind of certification, which dcap_qvl does not read
@example(632, 1)  # the low byte of a length
@example(1283, 1)  # a line break in a certificate
@example(len(SOFT_QUOTE) - 60, 1)  # the root, which dcap_qvl replaces by its own
def test_no_byte_of_a_quote_can_be_changed(at: int, mask: int) -> None:
    changed = bytearray(SOFT_QUOTE)
    changed[at] ^= mask
    assert refused(bytes(changed))
    assert not refused(SOFT_QUOTE)


FIELDS: Final[dict[str, str]] = json.loads(SOFT.collateral)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_changed_collateral_never_makes_more_than_the_same_verdict(data: st.DataObject) -> None:
    """Exempt changes in unsigned places (PEM armour, a root)."""
    name = data.draw(st.sampled_from(sorted(FIELDS)))
    text = FIELDS[name]
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.characters(codec="ascii")) + text[at + 1 :]
    try:
        given = Collateral.parse(json.dumps(FIELDS | {name: changed}))
    except MalformedEvidence:
        return
    _, check, tcb = quote_checks(parse_quote(SOFT_QUOTE), given, now=CLOCK, trust=SOFT.trust)
    if "chain" not in name and changed.lower() != text.lower():
        assert check.verdict is Verdict.FAILED
    assert tcb.verdict in {Verdict.PROVEN, Verdict.NOT_CHECKED}


# Collateral


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "null", "[" * 100_000, SOFT.collateral + " " * 2_000_000,
        json.dumps(FIELDS | {"tcb_info": "{}"}),
        json.dumps(FIELDS | {"tcb_info": FIELDS["tcb_info"].replace('"TDX"', '"SGX"')}),
        json.dumps(FIELDS | {"pck_crl": "00"}),
        json.dumps(FIELDS | {"pck_crl": FIELDS["pck_crl"].replace("020101", "020100", 1)}),
        json.dumps(FIELDS | {"qe_identity": 1}),
        json.dumps(FIELDS | {"qe_identity": FIELDS["qe_identity"].replace('"TD_QE"', '"QE"')}),
        json.dumps({name: text for name, text in FIELDS.items() if name != "tcb_info_signature"}),
    ],
)  # fmt: skip
def test_invalid_collateral_is_malformed(text: str) -> None:
    with pytest.raises(MalformedEvidence):
        Collateral.parse(text)
