"""docs/TOOLS.md is right: its code runs in the files that it names."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Final

from bot.chat.ask import APPROVAL_SECONDS
from bot.chat.own_tools import LISTED, offer_own_tools
from bot.chat.question_messages import how_to_answer, question_messages
from bot.config.loading import settings_of
from conversation_store.models import QuestionTerms
from tests.processes import run_process
from tools.base import Caller, Tool
from tools.catalog import open_tools
from tools.question import question
from tools.sandbox.pool import SandboxPolicy
from tools.schema import parse_object
from tools.workspace.workspaces import Workspaces

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


VARIABLES: Final = {
    "SIGNAL__PHONE_NUMBER": "+4915112345678",
    "LLM__API_KEY": "key",
    "TOOLS__WEB_SEARCH__PROVIDER": "duckduckgo",
}


async def all_tools() -> list[Tool]:
    """Return the tools of an admin of a bot with all built-in ones."""
    settings, sandboxes = settings_of(VARIABLES), SandboxPolicy()
    workspaces = Workspaces(Path("unused"), settings.tools.workspace, str, sandboxes)
    async with open_tools(settings.tools, sandboxes, workspaces=workspaces) as registry:
        offer_own_tools(settings, registry, LISTED)
        return [*registry.offered_to(Caller("ada", is_admin=True))]


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs/TOOLS.md").read_text(), re.DOTALL)


async def output_of(*command: str, cwd: Path) -> tuple[str, int | None]:
    path = {"PYTHONPATH": str(cwd)}
    output, errors, code = await run_process(*command, folder=cwd, environment=path)
    return (output if code == 0 else errors), code


def put_into(
    folder: Path, name: str, tool: str, imported: str, entry: str, *, table: str = "CATALOG"
) -> None:
    """Do to a copy of the tools what the document says."""
    for package in ("tools",):
        shutil.copytree(ROOT / package, folder / package)
    (folder / f"tools/{name}.py").write_text(tool)
    catalog = folder / "tools/catalog.py"
    text = catalog.read_text()
    text = text.replace("from tools.base import", f"{imported}from tools.base import", 1)
    text = re.sub(rf"(\n{table}: .*\{{\n)", lambda found: found[1] + entry, text, count=1)
    catalog.write_text(text)


async def called(folder: Path, *calls: tuple[str, str]) -> list[str]:
    output, code = await output_of(sys.executable, "-c", PROGRAM, json.dumps(calls), cwd=folder)
    assert code == 0, output
    return output.splitlines()


async def assert_is_clean(folder: Path, name: str) -> None:
    output, code = await output_of(
        sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"),
        f"tools/{name}.py", cwd=folder,
    )  # fmt: skip
    assert code == 0, output


async def test_a_tool_is_one_file_of_20_lines_and_one_entry_in_the_catalog(tmp_path: Path) -> None:
    tool, imported, entry, *_ = blocks()
    assert len(tool.splitlines()) <= 22
    assert len([line for line in tool.splitlines() if line.strip()]) <= 20
    assert (imported.count("\n"), entry.count("\n")) == (1, 1)
    put_into(tmp_path, "dice", tool, imported, entry)

    rolled, refused = await called(
        tmp_path, ("roll_dice", '{"sides": 2, "count": 3}'), ("roll_dice", '{"sides": 1}')
    )

    assert re.fullmatch(r"ok [12], [12], [12]", rolled), rolled
    assert refused.startswith("invalid The arguments of roll_dice are wrong: 'sides' should")
    await assert_is_clean(tmp_path, "dice")


async def test_every_tool_is_in_the_table() -> None:
    tools = await all_tools()
    table = (ROOT / "docs/TOOLS.md").read_text().split("\n## ")[1]
    named = set(re.findall(r"`([a-z_]+)`", re.sub(r"(?m)^(\| [^|]+\|).*", r"\1", table)))
    assert {tool.name for tool in tools} <= named


def test_quoted_question_before_a_call_is_real() -> None:
    arguments = {"path": "/srv/notes/shopping.txt", "content": "milk"}
    tool = Tool(
        "files_write_file",
        "Create a new file or completely overwrite an existing file with new content.",
        {},
        parse_object,
        nothing,
        side_effects=True,
    )
    terms = QuestionTerms("call", "ada", covers=(tool.name,))
    how = " ".join(how_to_answer(terms, minutes=APPROVAL_SECONDS / 60))
    [asked] = question_messages(tool.name, question(tool, arguments).text(), how)
    shown = re.findall(r"```\n(❓.*?)\n```", (ROOT / "docs/TOOLS.md").read_text(), re.DOTALL)
    assert [one.split() for one in shown] == [asked.text.split()]


async def nothing(_: object, __: Caller) -> str:
    raise AssertionError


async def test_a_tool_may_return_a_file(tmp_path: Path) -> None:
    _, imported, entry, *_, tool = blocks()
    imported, entry = (
        line.replace("tools.dice", "tools.qr").replace("roll_dice", "qr_code")
        for line in (imported, entry)
    )
    put_into(tmp_path, "qr", tool, imported, entry)

    (drawn,) = await called(tmp_path, ("qr_code", '{"text": "hello"}'))

    assert drawn == "ok The person gets the code with your answer. b'PNG'"
    await assert_is_clean(tmp_path, "qr")


async def test_a_tool_may_run_a_program_in_the_folder_of_its_chat(tmp_path: Path) -> None:
    *_, tool, imported, entry, _ = blocks()
    put_into(tmp_path, "word_counter", tool, imported, entry, table="IN_WORKSPACES")

    written, counted, outside = await called(
        tmp_path,
        ("write_file", '{"file_path": "a.txt", "content": "three short words"}'),
        ("count_words", '{"file_path": "a.txt"}'),
        ("count_words", '{"file_path": "/etc/shadow"}'),
    )

    assert written == "ok Wrote a.txt: 1 line, 17 bytes."
    assert counted == "ok 3 a.txt"
    assert "No such file" in outside or "denied" in outside
    await assert_is_clean(tmp_path, "word_counter")
