"""NVIDIA's remote attestation service on loopback, over HTTPS.

    async with nras_server(authority) as nras:
        ...  # nras.url, nras.requests; nras.tokens_handler = status(503)

It signs any evidence, see tests.fakes.soft_gpu; the steps of
tests.fakes.openai_server take the place of its answers.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.fakes.certificates import Authority
from tests.fakes.openai_server import JSON, OpenAiServer, Request, Step, raw_body
from tests.fakes.soft_gpu import SoftNras


@dataclass
class NrasServer(OpenAiServer):
    """The running service; its answers may be changed at any time.

    Attributes:
        overall: claims of the overall token in place of the good ones.
        tokens_handler: answers POST /v3/attest/gpu; None: with tokens.
        keys_handler: answers GET /.well-known/jwks.json; None: with its key set.
    """

    overall: dict[str, Any] = field(default_factory=dict)
    tokens_handler: Step | None = None
    keys_handler: Step | None = None

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @cached_property
    def signer(self) -> SoftNras:
        """Signer of its tokens, named after the port; set once the server listens."""
        return SoftNras(self.url)

    def step_for(self, request: Request) -> Step:
        match request.method, request.path:
            case "POST", "/v3/attest/gpu":
                return self.tokens_handler or self._tokens
            case "GET", "/.well-known/jwks.json":
                return self.keys_handler or self._keys
            case _:
                return super().step_for(request)

    async def _tokens(self, request: Request, writer: asyncio.StreamWriter) -> None:
        tokens = self.signer.attest(request.body, overall=self.overall)
        await raw_body(tokens, content_type=JSON)(request, writer)

    async def _keys(self, request: Request, writer: asyncio.StreamWriter) -> None:
        await raw_body(self.signer.keys, content_type=JSON)(request, writer)


@contextlib.asynccontextmanager
async def nras_server(authority: Authority) -> AsyncIterator[NrasServer]:
    """Run the service on a free loopback port, with a TLS key that this authority certifies."""
    nras = NrasServer(tls=authority.issue().context())
    await nras.start()
    try:
        yield nras
    finally:
        await nras.stop()
