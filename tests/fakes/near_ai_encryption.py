"""The model's side of end-to-end encryption: reads sealed requests, seals answers.

    model = EncryptedModel()
    async with openai_server(model.reads(text("hello"))) as server: ...

Its handling of fields is that of NEAR AI's servers, written from their documentation and on its
own: it shares nothing with the program's side but the libraries.
"""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from Crypto.Cipher import ChaCha20_Poly1305
from Crypto.Random import get_random_bytes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tests.fakes.openai_server import JSON, Body, Request, Step, status

P = 2**255 - 19


class CannotRead(Exception):
    """A field is not encrypted to this model; the answer is status 400."""


class EncryptedModel:
    """Holds the model's key.

    Attributes:
        public_key: Ed25519, 32 bytes: the key in the model's report.
        read: every request as the model read it, decrypted.
    """

    def __init__(self, seed: bytes = bytes(range(32))) -> None:
        key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public_key = key.public_key().public_bytes_raw()
        self.read: list[Body] = []
        self._scalar = X25519PrivateKey.from_private_bytes(hashlib.sha512(seed).digest()[:32])

    def encryption_key(self) -> bytes | None:
        """Return the key as the attested model in use would."""
        return self.public_key

    def open_request(self, headers: Mapping[str, str], body: Body) -> Body:
        """Return a request in the clear; CannotRead when a field is not encrypted."""
        if headers.get("x-signing-algo") != "ed25519" or headers["x-encryption-version"] != "2":
            raise CannotRead("not version 2")
        opened: Body = json.loads(json.dumps(body))
        for message in opened["messages"]:
            _replace(message, "content", self._content)
            for call in message.get("tool_calls", ()):
                _replace(call["function"], "name", self._open)
                _replace(call["function"], "arguments", self._open)
        for tool in opened.get("tools", ()):
            _replace(tool["function"], "name", self._open)
            _replace(tool["function"], "description", self._open)
            _replace(tool["function"], "parameters", lambda text: json.loads(self._open(text)))
        self.read.append(opened)
        return opened

    def seal_answer(self, headers: Mapping[str, str], body: Body) -> Body:
        """Return an answer, or one event of a stream, sealed for the client of the request."""
        client = bytes.fromhex(headers["x-client-pub-key"])

        def seal(text: str) -> str:
            return seal_field(client, text)

        sealed: Body = json.loads(json.dumps(body))
        for choice in sealed.get("choices", ()):
            words = choice.get("message") or choice.get("delta") or {}
            for name in ("content", "reasoning_content", "reasoning", "refusal"):
                _replace(words, name, seal)
            for call in words.get("tool_calls") or ():
                _replace(call["function"], "name", seal)
                _replace(call["function"], "arguments", seal)
        return sealed

    def reads(self, step: Step) -> Step:
        """Wrap a step so that it reads and writes everything in the clear."""

        async def sealed(request: Request, writer: asyncio.StreamWriter) -> None:
            try:
                body = self.open_request(request.headers, request.body)
            except (CannotRead, KeyError):
                await status(400, {"error": {"message": "Decryption failed"}})(request, writer)
                return
            said = _Captured()
            plain = Request(request.method, request.path, request.headers, body)
            await step(plain, said)  # type: ignore[arg-type]  # it only writes
            writer.write(self._sealed_response(request.headers, bytes(said.written)))

        return sealed

    def _sealed_response(self, headers: Mapping[str, str], response: bytes) -> bytes:
        head, _, chunked = response.partition(b"\r\n\r\n")
        body = unchunked(chunked).decode()
        if JSON.encode() in head:
            sealed = json.dumps(self.seal_answer(headers, json.loads(body)))
        else:
            sealed = "\n".join(self._sealed_line(headers, line) for line in body.split("\n"))
        return head + b"\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(sealed), sealed.encode())

    def _sealed_line(self, headers: Mapping[str, str], line: str) -> str:
        if not line.startswith("data: {"):
            return line
        event = json.loads(line.removeprefix("data: "))
        return "data: " + json.dumps(self.seal_answer(headers, event))

    def _content(self, text: str) -> object:
        """A decrypted array is taken for a list of parts, as the servers do."""
        said = self._open(text)
        with contextlib.suppress(ValueError, RecursionError):
            parts = json.loads(said)
            return parts if isinstance(parts, list) else said
        return said

    def _open(self, text: str) -> str:
        try:
            field = bytes.fromhex(text)
            key = _derived(self._scalar, X25519PublicKey.from_public_bytes(field[:32]))
            cipher = ChaCha20_Poly1305.new(key=key, nonce=field[32:56])
            return cipher.decrypt_and_verify(field[56:-16], field[-16:]).decode()
        except ValueError as error:
            raise CannotRead from error


def seal_field(ed25519_key: bytes, text: str) -> str:
    """Encrypt one field to the owner of an Ed25519 key, with an ephemeral key of its own."""
    y = int.from_bytes(ed25519_key, "little") % 2**255
    u = (1 + y) * pow(1 - y, P - 2, P) % P
    ephemeral, nonce = X25519PrivateKey.generate(), get_random_bytes(24)
    key = _derived(ephemeral, X25519PublicKey.from_public_bytes(u.to_bytes(32, "little")))
    cipher = ChaCha20_Poly1305.new(key=key, nonce=nonce)
    ciphertext, tag = cipher.encrypt_and_digest(text.encode())
    return (ephemeral.public_key().public_bytes_raw() + nonce + ciphertext + tag).hex()


class _Captured:
    def __init__(self) -> None:
        self.written = bytearray()

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        pass


def _derived(own: X25519PrivateKey, other: X25519PublicKey) -> bytes:
    return HKDF(SHA256(), 32, None, b"ed25519_encryption").derive(own.exchange(other))


def _replace(holder: dict[str, Any], name: str, change: Callable[[str], object]) -> None:
    if holder.get(name):
        holder[name] = change(holder[name])


def unchunked(chunked: bytes) -> bytes:
    body = b""
    while chunked:
        size, _, rest = chunked.partition(b"\r\n")
        length = int(size, 16)
        body, chunked = body + rest[:length], rest[length + 2 :]
    return body
