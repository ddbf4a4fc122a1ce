"""A process that has a busy sandbox, prints the sandbox's pid and waits to be killed."""

import asyncio
import sys

from tools.sandbox.pool import Sandbox


async def main() -> None:
    async with Sandbox("tests.fakes.sandbox_program") as sandbox, asyncio.TaskGroup() as calls:
        pid = await sandbox.call("pid")
        calls.create_task(sandbox.call("hang"))
        await asyncio.sleep(0)  # now the request is on its way
        print(pid, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
