"""Who has a network in commands, what is told of it, and when there is none."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandbox.jail.jail import Jail, Kind
from sandbox.policy import SandboxPolicy
from tests.fakes.web_server import answer, web_server
from tests.integration.test_jail import NO_BUBBLEWRAP
from tests.integration.test_jail_network import proxy_to
from tests.integration.test_sandbox import Ignore
from tools.approval import Decision
from tools.base import Caller, Outcome, Tool, ToolRequest
from tools.catalog import COMMANDS
from tools.commands.machine import this_machine
from tools.commands.tool import open_commands
from tools.executor import ToolExecutor
from tools.rate_limits import RateLimits
from tools.registry import Registry
from tools.settings import CommandApproval, CommandSettings, WorkspaceSettings
from tools.workspace.workspaces import Workspaces

pytestmark = NO_BUBBLEWRAP

ADMIN = Caller("ada", "chat", is_admin=True)
BEN = Caller("ben", "chat")
NO_NETWORK = "There is no network."
VARIABLE = "import os, socket; print(os.environ.get('http_proxy'))"


class Yes:
    """Says yes to whatever is asked, and keeps it."""

    def __init__(self) -> None:
        self.asked: list[ToolRequest] = []
        self.questions: list[str] = []

    async def ask(self, request: ToolRequest, question: str) -> Decision:
        if request.consent.asks:
            self.asked.append(request)
            self.questions.append(question)
        return Decision.YES


class Calls:
    """Calls tools as the bot does."""

    def __init__(self, registry: Registry) -> None:
        limits = RateLimits(per_person=100, per_bot=100)
        self.registry = registry
        self.executor = ToolExecutor(registry, limits=limits, timeout_seconds=10)
        self.people = Yes()

    async def call(self, caller: Caller, tool: str, **arguments: str) -> str:
        request = ToolRequest("call_1", tool, json.dumps(arguments), caller)
        result = await self.executor.execute(request, Ignore(), self.people)
        assert result.outcome is Outcome.OK, result.content
        return result.content

    def tools_of(self, caller: Caller) -> dict[str, Tool]:
        return {tool.name: tool for tool in self.registry.offered_to(caller)}


@asynccontextmanager
async def commands(
    folder: Path,
    *ports: int,
    approval: str = "ask",
    everyone: bool = True,
    network: bool = True,
    kind: Kind = Kind.BUBBLEWRAP,
) -> AsyncIterator[Calls]:
    settings = CommandSettings(CommandApproval(approval), network=network)
    sandboxes = SandboxPolicy()
    async with (
        Workspaces(WorkspaceSettings(folder, everyone=everyone), str, sandboxes) as workspaces,
        open_commands(
            workspaces,
            settings,
            sandboxes,
            jail=Jail(this_machine(), [kind]),
            make_proxy=lambda: proxy_to(*ports),
        ) as tools,
    ):
        registry = Registry()
        registry.offer(COMMANDS, tools)
        yield Calls(registry)


def fetching(url: str) -> str:
    return f"import urllib.request; print(urllib.request.urlopen('{url}').read())"


@pytest.mark.parametrize("approval", ["ask", "dangerous", "never"])
async def test_a_command_of_an_admin_reaches_the_internet(tmp_path: Path, approval: str) -> None:
    async with web_server({"/": answer(b"hello")}) as site:
        async with commands(tmp_path, site.port, approval=approval) as calls:
            url = f"http://web.test:{site.port}/"
            assert "b'hello'" in await calls.call(ADMIN, "run_python", code=fetching(url))
            questions = calls.people.questions
    assert len(questions) == (0 if approval == "never" else 1)
    assert all(
        "in the workspace of this chat, with access to the internet?" in q for q in questions
    )


async def test_nobody_else_has_a_network(tmp_path: Path) -> None:
    async with commands(tmp_path) as calls:
        assert "stdout:\nNone" in await calls.call(BEN, "run_python", code=VARIABLE)
        [question] = calls.people.questions
        assert question.startswith("Run this Python program in the workspace of this chat?")
        for name, tool in calls.tools_of(BEN).items():
            assert tool.description.endswith(NO_NETWORK), name
        for name, tool in calls.tools_of(ADMIN).items():
            assert "The public internet is reached on ports 80 and 443" in tool.description, name
            assert NO_NETWORK not in tool.description


async def test_only_admins_have_the_tools_where_only_they_have_a_workspace(tmp_path: Path) -> None:
    async with commands(tmp_path, everyone=False) as calls:
        assert not calls.tools_of(BEN)
        assert "http://127.0.0.1" in await calls.call(ADMIN, "run_python", code=VARIABLE)


@pytest.mark.parametrize("kind", list(Kind))
async def test_without_the_setting_there_is_none_for_anybody(tmp_path: Path, kind: Kind) -> None:
    async with commands(tmp_path, network=False, kind=kind) as calls:
        assert "stdout:\nNone" in await calls.call(ADMIN, "run_python", code=VARIABLE)
        assert calls.tools_of(ADMIN) == calls.tools_of(BEN)
        assert calls.tools_of(ADMIN)["run_command"].description.endswith(NO_NETWORK)


async def test_where_no_jail_with_a_network_holds_the_model_is_told_of_none(
    tmp_path: Path,
) -> None:
    async with commands(tmp_path, kind=Kind.LANDLOCK) as calls:
        assert "stdout:\nNone" in await calls.call(ADMIN, "run_python", code=VARIABLE)
        [question] = calls.people.questions
        assert "internet" not in question
        assert calls.tools_of(ADMIN)["run_python"].description.endswith(NO_NETWORK)


async def test_what_nobody_is_asked_about_because_it_is_harmless_has_no_network(
    tmp_path: Path,
) -> None:
    harmless = "import os; print(os.environ.get('http_proxy'))"
    async with commands(tmp_path, approval="dangerous") as calls:
        assert "stdout:\nNone" in await calls.call(ADMIN, "run_python", code=harmless)
        assert calls.people.questions == []
        assert "http://127.0.0.1" in await calls.call(ADMIN, "run_python", code=VARIABLE)
        assert len(calls.people.questions) == 1
        without_a_shell = {"command": "env", "arguments": "-u HOME"}
        assert "http_proxy=" in await calls.call(ADMIN, "run_command", **without_a_shell)
        assert len(calls.people.questions) == 2
        told = calls.tools_of(ADMIN)["run_command"].description
        assert told.endswith("What runs without the person being asked has no network.")


async def test_the_model_reads_what_was_refused(tmp_path: Path) -> None:
    async with commands(tmp_path, 80, approval="never") as calls:
        url = "http://127.0.0.2/latest/meta-data/"
        code = f"import urllib.request; urllib.request.build_opener().open('{url}')"
        said = await calls.call(ADMIN, "run_python", code=code)
    assert "the network refused:\n127.0.0.2 is not on the public internet" in said


@pytest.mark.parametrize("approval", ["ask", "dangerous"])
async def test_what_could_use_the_network_is_asked_about_each_time(
    tmp_path: Path, approval: str
) -> None:
    async with commands(tmp_path, approval=approval) as calls:
        await calls.call(ADMIN, "run_command", command="curl http://web.test/")
        await calls.call(ADMIN, "run_python", code="import socket")
        await calls.call(BEN, "run_command", command="curl http://web.test/")
        await calls.call(BEN, "run_python", code="import socket")
        covers = [asked.consent.covers for asked in calls.people.asked]
    assert covers == [(), (), ("run_command: curl",), ("run_python",)]


async def test_a_yes_for_longer_without_a_network_is_none_with_one(tmp_path: Path) -> None:
    versions = set()
    for network in (False, True):
        async with commands(tmp_path, network=network) as calls:
            await calls.call(ADMIN, "run_command", command="ls")
            versions.add(calls.people.asked[0].consent.version)
    assert len(versions) == 2
