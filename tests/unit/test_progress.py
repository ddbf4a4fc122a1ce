"""The progress message of a turn."""

from bot.chat.progress import MAX_EDITS, Progress
from bot.errors import SignalUnavailable
from bot.messaging.events import ChatId, ChatKind

CHAT = ChatId(ChatKind.DIRECT, "ada")


class Channel:
    """Keeps what was shown; a Messenger in little."""

    def __init__(self, *, broken: bool = False) -> None:
        self.shown: list[tuple[str, int | None]] = []
        self.broken = broken

    async def send(self, chat: ChatId, text: str, *, replaces: int | None = None) -> int:
        if self.broken:
            raise SignalUnavailable("away")
        self.shown.append((text, replaces))
        return 100 + len(self.shown)


async def test_one_message_is_extended_by_editing_its_last_edit() -> None:
    channel = Channel()
    progress = Progress(channel, CHAT, None)
    assert await progress.show(["calculate"]) == 101
    await progress.show(["calculate"])
    await progress.show(["get_weather", "web_search"])
    await progress.show(["web_fetch"])
    assert channel.shown == [
        ("🔧 Using calculate…", None),
        ("🔧 Using calculate, get_weather, web_search…", 101),
        ("🔧 Using calculate, get_weather, web_search, web_fetch…", 102),
    ]


async def test_after_a_restart_the_earlier_message_is_edited() -> None:
    channel = Channel()
    await Progress(channel, CHAT, 77).show(["calculate"])
    assert channel.shown == [("🔧 Using calculate…", 77)]


async def test_nothing_is_shown_for_no_tools() -> None:
    channel = Channel()
    assert await Progress(channel, CHAT, None).show([]) is None
    assert channel.shown == []


async def test_signals_limit_of_edits_is_kept() -> None:
    channel = Channel()
    progress = Progress(channel, CHAT, None)
    for number in range(30):
        await progress.show([f"tool_{number}"])
    assert len(channel.shown) == 1 + MAX_EDITS


async def test_a_channel_that_fails_is_no_failure_of_the_turn() -> None:
    channel = Channel(broken=True)
    progress = Progress(channel, CHAT, None)
    assert await progress.show(["calculate"]) is None
    channel.broken = False
    await progress.show(["web_search"])
    assert channel.shown == [("🔧 Using calculate, web_search…", None)]
