"""`!status`: a few lines for all people, and in private the state for operators."""

import re
from typing import Final

from bot.signal.events import Person
from tests.e2e.daemon_process import daemon, environment
from tests.e2e.running_bot import story, world
from tests.fakes.openai_server import status
from tests.fakes.signal_side import ADA

BEN: Final = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")
GROUP: Final = "c2VzYW1lc2VzYW1lc2VzYW1lc2VzYW1lc2VzYW1lc2U="
SPAN: Final = r"(\d+ (d|h|min) )?\d+ (d|h|min|s)"
SIZE: Final = r"[\d,.]+ (bytes|[KMGT]iB)"

FOR_EVERYBODY: Final = re.compile(
    rf"signal-tee-bot \S+\nUp for {SPAN}\n"
    r"Model: fake\.\n[^\n]+\n"
    r"Tools: \d+ \(!tools lists them\)\n"
    r"Answers in progress: 0"
)
FOR_ADMINS: Final = re.compile(
    FOR_EVERYBODY.pattern + r"\n\n"
    rf"Signal: connected for {SPAN}\n"
    r"Waiting: 0 to answer, 0 to send\n"
    rf"Store: {SIZE}, {SIZE} free on its disk\n"
    rf"Process: {SIZE} of memory, \d+ of [\d,]+ files open"
    rf"(\nLast trouble: [a-z._]+( \(.+\))?, {SPAN} ago)?"
)


async def test_everybody_hears_how_busy_the_bot_is_and_admins_in_private_how_it_is() -> None:
    async with story(access={"admins": ADA.aci}) as here:
        await here.signal.change_group(GROUP, members=[BEN], admins=[ADA.aci])
        to_ben = await here.asked("!status", author=BEN)
        in_group = await here.asked("!status", group=GROUP, mention=True)
        in_private = await here.asked("!status")
    assert FOR_EVERYBODY.fullmatch(to_ben)
    assert FOR_EVERYBODY.fullmatch(in_group)
    assert FOR_ADMINS.fullmatch(in_private)
    assert not any(word in in_private for word in (ADA.aci, BEN.aci, str(ADA.number)))


async def test_status_tells_admins_the_last_trouble() -> None:
    async with world(status(401, {"error": {"message": "sesame"}})) as here:
        settings = environment(here, ACCESS__ADMINS=ADA.aci)
        async with daemon(settings, folder=here.folder):
            await here.asked("hello")
            failed = await here.asked("!status")
    assert re.search(rf"\nLast trouble: turn\.failed \(LlmUnauthorized\), {SPAN} ago$", failed)
