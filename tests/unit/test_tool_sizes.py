"""Size of the tools in every request."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Final

import pytest

from bot.chat.own_tools import LISTED, offer_own_tools
from bot.chat.prompt import OF_FACTS, OF_REMINDERS
from bot.config.loading import settings_of
from bot.llm.messages import BYTES_PER_TOKEN
from tools.base import Caller, Tool
from tools.catalog import open_tools
from tools.sandbox.pool import SandboxPolicy
from tools.schema import to_openai
from tools.workspace.workspaces import Workspaces

ORDINARY_TOKENS: Final = 1_800
WORKSPACE_TOKENS: Final = 2_600
VARIABLES: Final = {
    "SIGNAL__PHONE_NUMBER": "+4915112345678",
    "LLM__API_KEY": "key",
    "TOOLS__WEB_SEARCH__PROVIDER": "duckduckgo",
}


async def tools_of(caller: Caller, *, without: Collection[str]) -> list[Tool]:
    """Return the tools of a bot with all built-in ones."""
    settings, sandboxes = settings_of(VARIABLES), SandboxPolicy()
    workspaces = Workspaces(Path("unused"), settings.tools.workspace, str, sandboxes)
    async with open_tools(settings.tools, sandboxes, workspaces=workspaces) as registry:
        offer_own_tools(settings, registry, LISTED)
        return [tool for tool in registry.offered_to(caller) if tool.name not in without]


def sent_bytes(tools: Collection[Tool]) -> int:
    """Return the size of the tools as a request to OpenAI's API has them."""
    declared = [to_openai(tool.spec) for tool in tools]
    return len(json.dumps(declared, ensure_ascii=False, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    ("is_admin", "without", "tokens", "bytes_per_token"),
    [
        (False, {"catch_up", *OF_REMINDERS}, ORDINARY_TOKENS, BYTES_PER_TOKEN),
        (True, {"catch_up", *OF_FACTS, *OF_REMINDERS}, WORKSPACE_TOKENS, BYTES_PER_TOKEN),
        # All tools together: JSON in English has about four bytes a token.
        (True, set(), WORKSPACE_TOKENS, 4),
    ],
)
async def test_tools_take_few_tokens_of_each_request(
    is_admin: bool, without: set[str], tokens: int, bytes_per_token: int
) -> None:
    tools = await tools_of(Caller("ada", is_admin=is_admin), without=without)
    assert len(tools) >= 16
    assert sum(tool.spec.size for tool in tools) <= tokens * bytes_per_token
    assert sent_bytes(tools) <= tokens * bytes_per_token
