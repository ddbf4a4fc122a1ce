"""Checks a request's AWS Signature Version 4 as AWS does, from what came over the wire.

Written from https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
without a look at the bot's own signing.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from tests.fakes.scripted_http import Request

UNRESERVED: Final = re.compile(rb"[A-Za-z0-9_.~/-]")
TOLERANCE: Final = timedelta(minutes=5)
AUTHORIZATION: Final = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<id>\w+)/(?P<date>\d{8})/(?P<region>[\w-]+)/(?P<service>\w+)"
    r"/aws4_request, SignedHeaders=(?P<headers>[a-z0-9;-]+), Signature=(?P<signature>[0-9a-f]{64})"
)
MISMATCH: Final = (
    "The request signature we calculated does not match the signature you provided. Check your AWS"
    " Secret Access Key and signing method. Consult the service documentation for details."
)


@dataclass(frozen=True)
class Account:
    """Whose signatures are accepted, for which service where."""

    access_key_id: str
    secret_access_key: str
    region: str
    service: str
    session_token: str | None = None


def problem_of(request: Request, account: Account) -> str | None:
    """Return what AWS has against the signature of a request."""
    headers = request.headers
    found = AUTHORIZATION.fullmatch(headers.get("authorization", ""))
    if found is None:
        return "Missing Authentication Token"
    scope = f"{found['date']}/{account.region}/{account.service}/aws4_request"
    stamp = headers["x-amz-date"]
    at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    names = found["headers"].split(";")
    has_to_be = {name for name in headers if name == "host" or name.startswith("x-amz-")}
    token = headers.get("x-amz-security-token")
    demands = {
        "The security token included in the request is invalid.": (
            (found["id"], token) == (account.access_key_id, account.session_token)
        ),
        f"Credential should be scoped to {scope}": (
            (found["region"], found["service"]) == (account.region, account.service)
        ),
        f"Signature expired: {stamp} is now earlier than the time allowed": (
            abs(datetime.now(UTC) - at) < TOLERANCE and stamp.startswith(found["date"])
        ),
        "'Host' and all 'X-Amz-' headers must be 'SignedHeaders' in the AWS Authorization.": (
            names == sorted(set(names)) and has_to_be <= set(names)
        ),
        MISMATCH: hmac.compare_digest(
            _signature(request, account, scope, names), found["signature"]
        ),
    }
    return next((words for words, holds in demands.items() if not holds), None)


def _signature(request: Request, account: Account, scope: str, names: Sequence[str]) -> str:
    said = "".join(f"{name}:{' '.join(request.headers[name].split())}\n" for name in names)
    path, _, query = request.path.partition("?")
    asked = f"{request.method}\n{_encoded(path)}\n{query}\n{said}\n{';'.join(names)}\n"
    asked += hashlib.sha256(request.raw).hexdigest()
    digest = hashlib.sha256(asked.encode()).hexdigest()
    to_sign = f"AWS4-HMAC-SHA256\n{request.headers['x-amz-date']}\n{scope}\n{digest}"
    key = ("AWS4" + account.secret_access_key).encode()
    for part in (*scope.split("/"), to_sign):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


def _encoded(path: str) -> str:
    """Encode every byte but the unreserved, also the percent signs that are there already."""
    return "".join(
        chr(byte) if UNRESERVED.fullmatch(bytes([byte])) else f"%{byte:02X}"
        for byte in path.encode()
    )
