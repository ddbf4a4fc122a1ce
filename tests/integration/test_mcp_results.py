"""A call has run, so its result is never lost because of a part that the bot does not know."""

from tests.integration.test_mcp import call, offered, rude
from tools.mcp.results import UNKNOWN_BLOCK


async def test_known_parts_of_a_result_are_read_beside_unknown_ones() -> None:
    async with offered(rude("unknown_blocks")) as registry:
        result = await call(registry, "rude_act")
    assert result.splitlines() == [
        "The words.",
        UNKNOWN_BLOCK,
        "More words.",
        UNKNOWN_BLOCK,
        "Marked.",
        UNKNOWN_BLOCK,
        "plain words",
        UNKNOWN_BLOCK,
        UNKNOWN_BLOCK,
        '{"result":[1]}',
    ]
