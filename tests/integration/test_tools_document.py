"""The tools of docs/TOOLS.md are put where it says, and run."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Final

from tests.processes import run_process

ROOT: Final = Path(__file__).parents[2]

PROGRAM: Final = """
import asyncio, json, sys
import structlog
from tools.base import Caller, ToolRequest
from tools.catalog import CATALOG, open_tools
from tools.executor import ToolExecutor
from tools.executor import RateLimits
from tools.settings import ToolsSettings, WorkspaceSettings
from tools.workspace.workspaces import Workspaces
from tools.sandbox.pool import SandboxPolicy
from pathlib import Path

async def never(*_): raise AssertionError
async def quiet(_): pass

async def main():
    wanted = ToolsSettings(disabled=frozenset(CATALOG) - {"roll_dice", "qr_code"})
    settings = WorkspaceSettings(**{"for": "everyone"})
    async with (
        Workspaces(Path("workspaces"), settings, str, SandboxPolicy()) as workspaces,
        open_tools(wanted, workspaces=workspaces) as registry,
    ):
        executor = ToolExecutor(
            registry, limits=RateLimits(per_person=9, per_bot=9), timeout_seconds=9
        )
        for name, arguments in json.loads(sys.argv[1]):
            request = ToolRequest("call_1", name, arguments, Caller("someone", "here"))
            result = await executor.execute(
                request, ask=never, starting=never, finished=quiet
            )
            print(result.outcome, result.content[:80], *[f.data[1:4] for f in result.files])

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
asyncio.run(main())
"""


def put_into(folder: Path, name: str, tool: str, lines: tuple[str, str], table: str) -> None:
    """Do to a copy of the tools what the document says."""
    imported, entry = lines
    (folder / f"tools/{name}.py").write_text(tool)
    catalog = folder / "tools/catalog.py"
    text = catalog.read_text()
    text = text.replace("from tools.base import", f"{imported}from tools.base import", 1)
    text = re.sub(rf"(\n{table}: .*\{{\n)", lambda found: found[1] + entry, text, count=1)
    catalog.write_text(text)


async def output_of(*command: str, cwd: Path) -> str:
    path = {"PYTHONPATH": str(cwd)}
    output, errors, code = await run_process(sys.executable, *command, folder=cwd, environment=path)
    assert code == 0, output + errors
    return output


async def test_tools_of_the_document_are_one_file_and_one_entry_and_work(tmp_path: Path) -> None:
    document = (ROOT / "docs/TOOLS.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", document, re.DOTALL)
    dice, imported, entry, *_, counter, imported_too, entry_too, qr = blocks
    assert len([line for line in dice.splitlines() if line.strip()]) <= 20
    assert (imported.count("\n"), entry.count("\n")) == (1, 1)
    imported_qr, entry_qr = (
        line.replace("tools.dice", "tools.qr").replace("roll_dice", "qr_code")
        for line in (imported, entry)
    )
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    put_into(tmp_path, "dice", dice, (imported, entry), "CATALOG")
    put_into(tmp_path, "qr", qr, (imported_qr, entry_qr), "CATALOG")
    put_into(tmp_path, "word_counter", counter, (imported_too, entry_too), "IN_WORKSPACES")

    calls = (
        ("roll_dice", '{"sides": 2, "count": 3}'),
        ("roll_dice", '{"sides": 1}'),
        ("qr_code", '{"text": "hello"}'),
        ("write_file", '{"file_path": "a.txt", "content": "three short words"}'),
        ("count_words", '{"file_path": "a.txt"}'),
        ("count_words", '{"file_path": "/etc/shadow"}'),
    )
    output = await output_of("-c", PROGRAM, json.dumps(calls), cwd=tmp_path)
    rolled, refused, drawn, written, counted, outside = output.splitlines()

    assert re.fullmatch(r"ok [12], [12], [12]", rolled), rolled
    assert refused.startswith("invalid The arguments of roll_dice are wrong: 'sides' should")
    assert drawn == "ok The person gets the code with your answer. b'PNG'"
    assert written == "ok Wrote a.txt: 1 line, 17 bytes."
    assert counted == "ok 3 a.txt"
    assert "No such file" in outside or "denied" in outside
    files = [f"tools/{name}.py" for name in ("dice", "qr", "word_counter")]
    config = str(ROOT / "pyproject.toml")
    await output_of("-m", "ruff", "check", "--config", config, *files, cwd=tmp_path)
