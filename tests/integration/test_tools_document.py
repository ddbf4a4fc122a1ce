"""docs/TOOLS.md does what it says: its lines are put where it says, and run."""

import re
import shutil
import sys
from pathlib import Path
from typing import Final

from tests.processes import run_process

ROOT: Final = Path(__file__).parents[2]

PROGRAM: Final = """
import asyncio
from tools.base import ToolRequest
from tools.catalog import CATALOG, open_tools
from tools.executor import ToolExecutor
from tools.rate_limits import RateLimits
from tools.settings import ToolSettings

class Quiet:
    async def starting(self, request): pass
    async def finished(self, result): pass

async def main():
    wanted = ToolSettings(disabled=frozenset(CATALOG) - {"roll_dice"})
    async with open_tools(wanted) as registry:
        executor = ToolExecutor(
            registry, limits=RateLimits(per_person=9, per_bot=9), timeout_seconds=9
        )
        for arguments in ('{"sides": 2, "count": 3}', '{"sides": 1}'):
            request = ToolRequest("call_1", "roll_dice", arguments, "someone")
            result = await executor.execute(request, Quiet(), None)
            print(result.outcome, result.content[:80])

asyncio.run(main())
"""


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs/TOOLS.md").read_text(), re.DOTALL)


async def output_of(*command: str, cwd: Path) -> tuple[str, int | None]:
    path = {"PYTHONPATH": str(cwd)}
    output, errors, code = await run_process(*command, folder=cwd, environment=path)
    return (output if code == 0 else errors), code


async def test_a_tool_is_one_file_of_20_lines_and_one_entry_in_the_catalog(tmp_path: Path) -> None:
    tool, imported, entry = blocks()
    assert len(tool.splitlines()) <= 22
    assert len([line for line in tool.splitlines() if line.strip()]) <= 20
    assert (imported.count("\n"), entry.count("\n")) == (1, 1)
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    (tmp_path / "tools/dice.py").write_text(tool)
    catalog = tmp_path / "tools/catalog.py"
    text = catalog.read_text()
    text = text.replace("from tools.errors import", f"{imported}from tools.errors import", 1)
    text = re.sub(r"(\nCATALOG: .*\{\n)", lambda found: found[1] + entry, text, count=1)
    catalog.write_text(text)

    output, code = await output_of(sys.executable, "-c", PROGRAM, cwd=tmp_path)
    assert code == 0, output
    rolled, refused = output.splitlines()
    assert re.fullmatch(r"ok [12], [12], [12]", rolled), output
    assert refused.startswith("invalid The arguments of roll_dice are wrong: 'sides' should")

    output, code = await output_of(
        sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"),
        "tools/dice.py", cwd=tmp_path,
    )  # fmt: skip
    assert code == 0, output
