"""A PCCS on loopback: Intel's four questions, answered from a collateral.

    async with pccs(soft.collateral) as service:
        ...  # service.url, service.asked, service.behaviours[TCB] = answer(b"", status=503)

Revocation lists go out as hex, as a PCCS writes them; `der=True` sends them as Intel does.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import quote as url_quoted

from tests.fakes.web_server import Behaviour, WebServer, answer, web_server

PCK_CRL: Final = "/sgx/certification/v4/pckcrl"
ROOT_CRL: Final = "/sgx/certification/v4/rootcacrl"
TCB: Final = "/tdx/certification/v4/tcb"
IDENTITY: Final = "/tdx/certification/v4/qe/identity"


@asynccontextmanager
async def pccs(collateral: str, *, der: bool = False) -> AsyncIterator[WebServer]:
    """Serve a collateral, given as JSON text, while the context is open."""
    async with web_server(documents(collateral, der=der)) as server:
        yield server


def documents(collateral: str, *, der: bool = False) -> dict[str, Behaviour]:
    fields: Mapping[str, str] = json.loads(collateral)
    pck_crl, root_crl = (
        bytes.fromhex(fields[name]) if der else fields[name].encode()
        for name in ("pck_crl", "root_ca_crl")
    )
    return {
        PCK_CRL: _document(pck_crl, "SGX-PCK-CRL-Issuer-Chain", fields["pck_crl_issuer_chain"]),
        ROOT_CRL: _document(root_crl),
        TCB: _document(
            _signed("tcbInfo", fields["tcb_info"], fields["tcb_info_signature"]),
            "TCB-Info-Issuer-Chain",
            fields["tcb_info_issuer_chain"],
        ),
        IDENTITY: _document(
            _signed("enclaveIdentity", fields["qe_identity"], fields["qe_identity_signature"]),
            "SGX-Enclave-Identity-Issuer-Chain",
            fields["qe_identity_issuer_chain"],
        ),
    }


def _signed(name: str, document: str, signature: str) -> bytes:
    return f'{{"{name}":{document},"signature":"{signature}"}}'.encode()


def _document(body: bytes, name: str = "", chain: str = "") -> Behaviour:
    headers = {name: url_quoted(chain)} if name else {}
    return answer(body, "application/octet-stream", keep_alive=True, headers=headers)
