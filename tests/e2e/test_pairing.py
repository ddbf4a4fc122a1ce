"""Strangers, codes and loops, from the first message to the command line."""

import asyncio
import re

import pytest

from bot.chat.access import MAX_TURNS
from bot.chat.door import WELCOME, WELCOME_ADMIN
from bot.signal.events import Person
from conversation_store.pairings import open_pairing_book
from tests.e2e.daemon_process import daemon, environment, run_command
from tests.e2e.proving_world import proving_world
from tests.e2e.running_bot import World, kill, running_bot, world
from tests.e2e.test_approvals import WRITE, notes, with_notes
from tests.e2e.test_conversation import BEN
from tests.e2e.traces import gone
from tests.fakes.openai_server import echo, script, text, tool_calls
from tests.fakes.signal_people import SharedFile
from tests.fakes.signal_side import ADA, Sent

PAIRING = {"policy": "pairing", "admins": BEN.aci}
SECRET = "my-secret-words"
GROUP = "Z3JvdXA="


def code_in(text: str) -> str:
    found = re.search(r"^[A-Z0-9]{6}$", text, re.MULTILINE)
    assert found is not None, text
    return found[0]


async def approve(here: World, code: str, *options: str, **settings: str) -> str:
    code_, out, err = await run_command(
        ["pair", "approve", code, *options], environment(here, **settings), folder=here.folder
    )
    assert (code_, err) == (0, "")
    return out


async def sent_to(here: World, person: Person, number: int) -> str:
    """Return the text of the bot's n-th message to a person, once it is there."""

    def texts() -> list[str]:
        return [sent.text for sent in here.signal.sent if sent.chat.value == person.aci]

    await here.signal.until(lambda: len(texts()) >= number)
    return texts()[number - 1]


async def test_a_stranger_is_let_in_by_the_code_while_the_bot_runs() -> None:
    async with world() as here:
        pairing = environment(here, ACCESS__POLICY="pairing")
        async with daemon(pairing, folder=here.folder) as bot:
            await here.signal.say(SECRET)
            code = code_in((await here.answer()).text)
            await here.signal.say(f"{SECRET} again")
            listed = await run_command(["pair", "list"], pairing, folder=here.folder)
            assert f"  {code}  Ada {ADA.number} {ADA.aci}, 0 minutes ago\n" in listed[1]
            out = await approve(here, code.lower(), ACCESS__POLICY="pairing")
            assert out == f"Let in: Ada {ADA.number} {ADA.aci}\n"
            assert (await here.answer()).text == WELCOME
            await here.signal.say("hello")
            assert (await here.answer()).text.endswith("hello")
            assert here.signal.accepted_requests == [ADA.aci]
            logged = "\n".join(bot.stderr)
        stored = b"".join(file.read_bytes() for file in here.folder.glob("store.db*"))
    assert len(here.signal.sent) == 3
    assert SECRET not in str(here.model.requests)
    assert not [one for one in (SECRET, ADA.aci, str(ADA.number), "Ada", code) if one in logged]
    assert SECRET.encode() not in stored


async def test_a_stranger_gets_one_message_within_the_hour() -> None:
    async with world() as here:
        async with running_bot(here.settings(access=PAIRING)):
            first = await here.signal.say("hello")
            await here.answer()
            await here.signal.say("!help")
            await here.signal.edit("hello!", first)
            await here.signal.react("👍", here.signal.sent[0].timestamp)
            await here.signal.say("", files=[SharedFile("image/png", b"png")])
            await here.signal.say("hi all", group=GROUP, mention=True)
        async with running_bot(here.settings(access=PAIRING)):
            await here.signal.say("still there?")
            await here.signal.say("hello", author=BEN)
            await sent_to(here, BEN, 1)
    assert len(here.signal.sent) == 2
    assert here.signal.accepted_requests == [BEN.aci]


async def test_a_greeting_that_a_crash_left_unsent_is_sent_once() -> None:
    stuck, sending = asyncio.Event(), asyncio.Event()

    async def stall(sent: Sent) -> None:
        sending.set()
        await stuck.wait()

    async with world() as here:
        async with running_bot(here.settings(access=PAIRING)) as bot:
            await here.signal.say("hello")
            code = code_in((await here.answer()).text)
            here.signal.on_send = stall
            with open_pairing_book(here.folder / "store.db", None) as book:
                book.approve(code)
            await sending.wait()
            await kill(bot)
        here.signal.on_send = None
        for _ in range(2):
            async with running_bot(here.settings(access=PAIRING)):
                await here.signal.say("hello")
                await here.signal.wait_for(lambda sent: sent.text.endswith("hello"))
    assert here.answers().count(WELCOME) == 1


async def test_only_an_admin_lets_people_in_from_the_chat() -> None:
    async with world() as here:
        access = {**PAIRING, "allowed": "+15550100003"}
        cleo = Person(aci="0d1e2f30-0000-4000-8000-00000000000c", number="+15550100003")
        async with running_bot(here.settings(access=access)):
            await here.signal.say("hello")
            code = code_in((await here.answer()).text)
            await here.signal.say(f"!pair {code}", author=cleo)
            assert "I don't know that command" in (await here.answer()).text
            await here.signal.say(f"!pair {code}", author=BEN)
            assert await sent_to(here, BEN, 1) == "Ada can talk to me now."
            assert await sent_to(here, ADA, 2) == WELCOME
            await here.signal.say("!pair AAAAAA", author=BEN)
            assert "no such code" in await sent_to(here, BEN, 2)
            await here.signal.say("!pair", author=BEN)
            assert "such as !pair" in await sent_to(here, BEN, 3)


async def test_new_admin_can_let_others_in() -> None:
    async with world() as here:
        async with running_bot(here.settings(access={"policy": "pairing"})):
            await here.signal.say("hello")
            code = code_in((await here.answer()).text)
            said = await approve(here, code, "--admin", ACCESS__POLICY="pairing")
            assert said == f"Admin: Ada {ADA.number} {ADA.aci}\n"
            assert (await here.answer()).text == WELCOME_ADMIN

            await here.signal.say("hello", author=BEN)
            await here.signal.say(f"!pair {code_in(await sent_to(here, BEN, 1))}")
            assert await sent_to(here, BEN, 2) == WELCOME
            await here.signal.say("!pair AAAAAA", author=BEN)
            assert "I don't know that command" in await sent_to(here, BEN, 3)
            await approve(here, BEN.aci[:8], "--admin", ACCESS__POLICY="pairing")
            assert await sent_to(here, BEN, 4) == WELCOME_ADMIN
        async with running_bot(here.settings(access={"policy": "pairing"})):
            await here.signal.say("!pair AAAAAA", author=BEN)
            assert "no such code" in await sent_to(here, BEN, 5)


@pytest.mark.full
async def test_code_works_with_an_encrypted_store() -> None:
    async with world() as here:
        async with running_bot(here.settings(access=PAIRING, store={"key": "k"})):
            await here.signal.say("hello")
            code = code_in((await here.answer()).text)
            settings = environment(here, STORE__KEY="another")
            refused = await run_command(["pair", "list"], settings, folder=here.folder)
            assert refused[0] == 1
            assert "the key does not fit" in refused[2]
            await approve(here, code, ACCESS__POLICY="pairing", STORE__KEY="k")
            assert (await here.answer()).text == WELCOME


async def test_code_works_with_the_key_of_the_machine() -> None:
    async with proving_world() as proving:
        here = proving.here
        settings = proving.settings("off", store={"key_source": "dstack"}, access=PAIRING)
        async with running_bot(settings, trust=proving.trust):
            await here.signal.say("hello")
            await approve(
                here,
                code_in((await here.answer()).text),
                ACCESS__POLICY="pairing",
                STORE__KEY_SOURCE="dstack",
                ATTESTATION__DSTACK_SOCKET=str(proving.socket),
            )
            assert (await here.answer()).text == WELCOME


async def test_bot_stops_answering_another_bot_until_a_person_sends_a_command() -> None:
    async with world() as here, asyncio.TaskGroup() as tasks:

        async def answer_at_once(sent: Sent) -> None:
            tasks.create_task(here.signal.say("I am a helpful bot as well!"))

        async with running_bot(here.settings(access={"messages_per_minute": 10 * MAX_TURNS})):
            here.signal.on_send = answer_at_once
            await here.signal.say("hello")
            notice = await here.signal.wait_for(lambda sent: "two bots" in sent.text)
            here.signal.on_send = None
            await here.signal.say("Are you there?")
            await here.signal.say("hello", author=BEN)
            await sent_to(here, BEN, 1)
            mine = [sent for sent in here.signal.sent if sent.chat.value == ADA.aci]
            assert mine[-1] == notice
            assert len(mine) == MAX_TURNS + 1
            assert "send !help" in notice.text
            await here.signal.say("!help")
            await here.signal.wait_for(lambda sent: "!status" in sent.text)
            await here.signal.say("hello again")
            await here.signal.wait_for(lambda sent: sent.text.endswith("hello again"))


async def test_bot_never_falls_silent_towards_an_admin() -> None:
    async with world() as here:
        access = {"admins": ADA.aci, "messages_per_minute": 10 * MAX_TURNS}
        async with running_bot(here.settings(access=access)):
            for _ in range(MAX_TURNS + 2):
                await here.signal.say("!timezone")
                assert "two bots" not in (await here.answer()).text


async def put_out(here: World, person: Person) -> None:
    """Revoke a person's access while the bot runs, and wait until the bot knows."""
    with open_pairing_book(here.folder / "store.db", None) as book:
        assert book.revoke(person.aci)
    words = ""
    while "give this code" not in words:  # the bot looks about twice a second
        await here.signal.say("me again", author=person)
        words = (await here.answer()).text


async def test_revoked_person_may_delete_messages_but_not_decide() -> None:
    async with world(script(echo, tool_calls(WRITE), text("Done."))) as here:
        async with running_bot(with_notes(here, access=PAIRING)):
            await here.signal.say("hello")
            code = code_in((await here.answer()).text)
            await here.signal.say(f"!pair {code}", author=BEN)
            assert await sent_to(here, ADA, 2) == WELCOME
            await here.signal.until(lambda: len(here.signal.sent) == 3)
            secret = await here.signal.say(SECRET)
            await here.signal.wait_for(lambda sent: sent.text.endswith(SECRET))
            await here.signal.say("note: buy milk", group=GROUP, mention=True)
            asked = await here.signal.wait_for(lambda sent: sent.text.startswith("❓"))
            await put_out(here, ADA)
            await here.signal.react("👍", asked.timestamp, group=GROUP)
            await here.signal.delete(secret)
            await gone(here, SECRET)
            await here.signal.react("👎", asked.timestamp, author=BEN, group=GROUP)
            await here.signal.wait_for(lambda sent: sent.text.startswith("Done"))
        assert notes(here) == ""
