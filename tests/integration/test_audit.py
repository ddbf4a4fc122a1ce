"""`make audit`, against a vulnerability service on loopback that speaks OSV's protocol.

https://google.github.io/osv.dev/post-v1-query/
"""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from tests.fakes.http import served

pytestmark = pytest.mark.full

ROOT: Final = Path(__file__).parents[2]
AUDIT_SECONDS: Final = 300.0

ADVISORY: Final = {
    "id": "PYSEC-2099-1",
    "modified": "2099-01-01T00:00:00Z",
    "published": "2099-01-01T00:00:00Z",
    "summary": "Made up for this test.",
    "affected": [
        {
            "package": {"name": "aiohttp", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99.0"}]}],
        }
    ],
}


async def audit(*, vulnerable: str) -> tuple[int, str, list[str]]:
    """Return the exit code, what is printed, and the packages that the service was asked about."""
    asked: list[str] = []

    async def query(request: web.BaseRequest) -> web.Response:
        package: dict[str, Any] = (await request.json())["package"]
        assert package["ecosystem"] == "PyPI"
        asked.append(package["name"])
        found = {"vulns": [ADVISORY]} if package["name"] == vulnerable else {}
        return web.json_response(found)

    async with served(query) as port:
        service = f"--vulnerability-service osv --osv-url http://127.0.0.1:{port}/v1/query"
        process = await asyncio.create_subprocess_exec(
            *("make", "--silent", "audit", f"VULNERABILITIES={service}"),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(AUDIT_SECONDS):
                printed, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, printed.decode(), asked


def test_audit_lists_every_locked_package_and_fails_by_the_name_of_a_vulnerability() -> None:
    code, printed, asked = asyncio.run(audit(vulnerable="aiohttp"))
    assert code != 0
    assert "PYSEC-2099-1" in printed
    assert {"aiohttp", "cryptography", "signalbot"} <= set(asked)
    components = json.loads((ROOT / "dist" / "sbom.json").read_text())["components"]
    listed = {component["purl"] for component in components}
    assert any(purl.startswith("pkg:pypi/signalbot@") for purl in listed)
    assert not any(purl.startswith("pkg:pypi/pytest@") for purl in listed)
