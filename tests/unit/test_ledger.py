"""Every place that opens a connection either notes what leaves, or sends nothing of people."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

OPENS: Final = re.compile(
    r"new_session\(|ClientSession\(|create_(?:unix_)?connection\(|open_(?:unix_)?connection\("
    r"|create_subprocess_\w+\(|socket\.socket\(|AsyncClient\(|_transport\.sent\(|Popen\("
    r"|session\.request\(|\.send_request\("
)
NOTES: Final = "ledger.note("

NOTED: Final = {
    "bot/llm/client.py": "questions to the model; what it is told besides has nothing of people",
    "tools/web/client.py": "searches, pages and places",
    "tools/mcp/servers.py": "calls of MCP servers",
}
"""Places that note what they send."""

WITHOUT_PEOPLE: Final = {
    "bot/attestation/http.py": "evidence and certificates: nonces and quotes, no words of people",
    "bot/cli/deploy_platforms.py": "the operator's own program for a platform",
    "bot/observability/health_client.py": "asks this machine's own health port",
    "bot/observability/systemd.py": "tells the service manager that the bot lives",
    "bot/signal/installation.py": "fetches signal-cli, for the operator",
    "bot/signal/json_rpc.py": "Signal itself",
    "bot/signal/registration.py": "Signal itself",
    "bot/signal/signal_rest.py": "Signal itself",
    "bot/signal/spawned.py": "Signal itself",
    "tools/http.py": "the transport below bot/llm/client.py and tools/mcp",
    "tools/mcp/transports.py": "the transport below tools/mcp/servers.py",
    "tools/sandbox/jail/jail.py": "commands have no network",
    "tools/sandbox/pool.py": "workers have no network",
    "tools/web/guard.py": "looks which of this machine's own addresses would be used",
}
"""Places that need no entry, with the reason."""


def test_every_place_that_opens_a_connection_is_known_to_the_ledger() -> None:
    sources = {
        str(path.relative_to(ROOT)): path.read_text()
        for folder in ("bot", "tools", "conversation_store")
        for path in (ROOT / folder).rglob("*.py")
    }
    opening = {name for name, source in sources.items() if OPENS.search(source)}
    assert opening == NOTED.keys() | WITHOUT_PEOPLE.keys()
    assert [name for name in NOTED if NOTES not in sources[name]] == []
