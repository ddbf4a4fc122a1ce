"""AWS Signature Version 4, as Bedrock checks it.

Reference: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.parse import quote, urlsplit

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SERVICE: Final = "bedrock"
_SIGNED: Final = ("content-type", "host")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who signs, and for which region."""

    region: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def signed(
    url: str, headers: Mapping[str, str], body: bytes, credentials: Credentials, at: datetime
) -> Mapping[str, str]:
    """Return the headers of a POST, with its signature.

    Args:
        url: where it goes, without a query; sent exactly as it stands here.
        headers: what it says, in lower case.
        body: what is sent.
        credentials: who signs.
        at: now, in UTC; AWS takes five minutes more or less.
    """
    parts = urlsplit(url)
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{credentials.region}/{SERVICE}/aws4_request"
    said = {**headers, "host": parts.netloc, "x-amz-date": stamp}
    if credentials.session_token:
        said["x-amz-security-token"] = credentials.session_token
    names = sorted(name for name in said if name in _SIGNED or name.startswith("x-amz-"))
    request = "\n".join(
        [
            "POST",
            quote(parts.path, safe="/~"),  # a second time, as for all services but S3
            "",
            *(f"{name}:{said[name].strip()}" for name in names),
            "",
            ";".join(names),
            hashlib.sha256(body).hexdigest(),
        ]
    )
    digest = hashlib.sha256(request.encode()).hexdigest()
    signature = hmac.digest(
        _key(credentials, scope), f"{ALGORITHM}\n{stamp}\n{scope}\n{digest}".encode(), "sha256"
    )
    said["authorization"] = (
        f"{ALGORITHM} Credential={credentials.access_key_id}/{scope},"
        f" SignedHeaders={';'.join(names)}, Signature={signature.hex()}"
    )
    return said


def _key(credentials: Credentials, scope: str) -> bytes:
    key = f"AWS4{credentials.secret_access_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
