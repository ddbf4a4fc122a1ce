"""A process that looks like signal-cli-rest-api: the one of the tests.

python -m benchmarks.rest_side
"""

import asyncio

from benchmarks.control import Json, obey
from tests.fakes.signal_rest_api import NUMBER, SignalRestApi


async def _carry_out(command: Json) -> Json:
    raise SystemExit(f"The Signal side knows no command: {command}")


async def main() -> None:
    async with SignalRestApi.listen() as server:
        await obey(_carry_out, ready={"url": server.url, "number": NUMBER})


if __name__ == "__main__":
    asyncio.run(main())
