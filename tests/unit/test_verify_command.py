"""`!verify` as a person sees it: the whole way from the command to a soft machine and back."""

import re
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from bot.attestation.bundle import MAX_CHALLENGE_BYTES, Bundle
from bot.attestation.checks import Report
from bot.attestation.proof import OwnProof
from bot.commands.base import PROOFS_PER_MINUTE, CommandContext, Parts, Prover, Reply
from bot.commands.verify import verify
from bot.signal.account import OwnIdentity, half
from bot.signal.events import Person
from bot.signal.formatting import MAX_PART_BYTES
from conversation_store.models import ChatId, ExchangeState, StoredExchange
from tests.unit.commands import IDLE, parts
from tests.unit.soft_machine import IDENTITY, Intel, Machine, machine

MODEL_STATE: Final = "The model is proven since 12:00 UTC."
PRIVATE: Final = ChatId.direct(IDENTITY.aci)
ALICE: Final = Person("a11ce000-0000-4000-8000-000000000000")
BOB: Final = Person("b0b00000-0000-4000-8000-000000000000")


class SomeModel:
    def summary(self, chat: str) -> str:
        return MODEL_STATE


@dataclass
class Answers:
    """The signatures of the last answer, by chat."""

    by_chat: Mapping[str, Sequence[StoredExchange]]

    async def of_last_answer(self, chat: str) -> Sequence[StoredExchange]:
        return self.by_chat.get(chat, ())


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Bot:
    """A bot that can be asked."""

    parts: Parts
    clock: Clock
    machine: Machine | None = None

    async def ask(self, argument: str = "", *, chat: ChatId = PRIVATE, by: Person = ALICE) -> Reply:
        return await verify.answer(CommandContext(chat, by, argument, 1, self.parts, IDLE))


def bot_with(
    prover: OwnProof | None, answers: Mapping[str, Sequence[StoredExchange]] | None = None
) -> Bot:
    clock = Clock()
    store = SimpleNamespace(exchanges=Answers(answers or {}))
    made = None if prover is None else Prover(prover.make, clock)
    return Bot(parts(store=store, models=SomeModel(), prover=made), clock)


@asynccontextmanager
async def bot(
    folder: Path, *, tcb_status: str = "UpToDate", collateral: bool = True
) -> AsyncIterator[Bot]:
    async with machine(folder, tcb_status=tcb_status) as running:
        intel = None if collateral else Intel(None)
        asked = bot_with(running.prover(intel))
        asked.machine = running
        yield asked


def on_a_laptop(reply: Reply, running: Machine | None) -> Report:
    """Do what the answer says: check its file with its own command line."""
    assert running is not None
    line = next(line for line in reply.text.splitlines() if line.startswith("signal-tee-bot "))
    program, verb, file, challenge, safety_number = shlex.split(line)
    assert (program, verb, file) == ("signal-tee-bot", "verify", reply.attachments[0].name)
    assert safety_number == "--safety-number=all 60 digits"
    return running.verify(
        Bundle.parse(reply.attachments[0].data),
        challenge.removeprefix("--challenge="),
        half(IDENTITY.aci, IDENTITY.identity_key) + "0" * 30,
    )


@pytest.mark.parametrize(
    "challenge",
    [
        "x" * MAX_CHALLENGE_BYTES,
        "",
        'it\'s "quoted" $HOME `id`',
        "-rf --json",
        "Zürich 🦒",
        "!verify",
    ],
)
async def test_the_file_passes_with_the_command_that_the_answer_shows(
    tmp_path: Path, challenge: str
) -> None:
    async with bot(tmp_path) as asked:
        reply = await asked.ask(challenge)
        report = on_a_laptop(reply, asked.machine)
    assert report.passed
    assert reply.text.startswith("Proof of what answers you here.")
    assert MODEL_STATE in reply.text
    assert len(reply.text.encode()) < MAX_PART_BYTES
    [file] = reply.attachments
    assert re.fullmatch(r"[A-Za-z0-9.-]+\.json", file.name)


async def test_a_challenge_of_the_bots_own_is_new_each_time_and_said_to_be_worth_less(
    tmp_path: Path,
) -> None:
    async with bot(tmp_path) as asked:
        replies = [await asked.ask() for _ in range(2)]
    challenges = [
        re.findall(r"^CHALLENGE\n“([0-9a-f]{16})”$", r.text, re.MULTILINE) for r in replies
    ]
    assert len(challenges[0]) == len(challenges[1]) == 1
    assert challenges[0] != challenges[1]
    assert all("the file may be an old one" in reply.text for reply in replies)


@pytest.mark.parametrize(
    ("tcb_status", "linked_devices", "words"),
    [
        ("OutOfDate", 0, "OutOfDate (INTEL-SA-99999)"),
        ("Revoked", 0, "revoked"),
        ("UpToDate", 1, "linked to the account"),
    ],
)
async def test_a_proof_that_fails_the_bots_own_check_says_so_first(
    tmp_path: Path, tcb_status: str, linked_devices: int, words: str
) -> None:
    async with bot(tmp_path, tcb_status=tcb_status) as asked:
        assert asked.machine is not None
        asked.machine.account.identity = replace(IDENTITY, linked_devices=linked_devices)
        reply = await asked.ask("blue giraffe 42")
        assert not on_a_laptop(reply, asked.machine).passed
    first, second, *_ = reply.text.split("\n\n")
    assert first.startswith("This does not prove that nobody else reads along")
    assert second.startswith("WHAT IS WRONG\n")
    assert words in second
    assert "THE FILE PROVES" not in reply.text


async def test_incomplete_own_check_is_explained_and_the_file_is_sent(
    tmp_path: Path,
) -> None:
    async with bot(tmp_path, collateral=False) as asked:
        reply = await asked.ask("blue giraffe 42")
        assert on_a_laptop(reply, asked.machine).passed
    assert "NOT CHECKED HERE\n• Intel's collateral could not be fetched." in reply.text
    assert "IF IT IS GENUINE, THE FILE PROVES\n" in reply.text
    assert "\nTHE FILE PROVES" not in reply.text
    assert "ONLY THE PROGRAM SAYS" not in reply.text


@pytest.mark.parametrize("identity", [None, replace(IDENTITY, aci="unknown")])
async def test_without_the_signal_sides_usable_word_on_the_account_nothing_is_proven(
    tmp_path: Path, identity: OwnIdentity | None
) -> None:
    async with bot(tmp_path) as asked:
        assert asked.machine is not None
        asked.machine.account.identity = identity
        reply = await asked.ask()
    assert reply.text.startswith("I cannot prove anything right now. ")
    assert reply.attachments == ()


@pytest.mark.parametrize(
    ("challenge", "words"),
    [
        ("x" * (MAX_CHALLENGE_BYTES + 1), "too long"),
        ("ü" * (MAX_CHALLENGE_BYTES // 2 + 1), "too long"),
        ("two\nlines", "one line"),
        ("\N{RIGHT-TO-LEFT OVERRIDE}kcab", "one line"),
        ("half a \ud83d", "one line"),
    ],
)
async def test_a_challenge_that_cannot_be_copied_is_refused_in_words(
    tmp_path: Path, challenge: str, words: str
) -> None:
    async with bot(tmp_path) as asked:
        assert asked.machine is not None
        reply = await asked.ask(challenge)
        assert asked.machine.agent.requests == []
    assert words in reply.text
    assert len(reply.text) < 100


async def test_a_person_gets_a_few_proofs_a_minute_and_others_are_not_concerned(
    tmp_path: Path,
) -> None:
    async with bot(tmp_path) as asked:
        for _ in range(PROOFS_PER_MINUTE):
            assert (await asked.ask(by=ALICE)).attachments
        asked.clock.now += 20
        assert (await asked.ask(by=ALICE)).text == (
            "I make up to 5 proofs a minute for you. Ask again in 40 s."
        )
        assert (await asked.ask(by=BOB)).attachments
        asked.clock.now += 40
        assert (await asked.ask(by=ALICE)).attachments


def signed(state: ExchangeState, kind: str = "", words: str = "") -> StoredExchange:
    return StoredExchange(1, 1, "chatcmpl-1", "00" * 32, "11" * 32, state, kind, words)


PROVEN: Final = signed("proven", "provider_tee", "The model's machine has signed.")
GATEWAY: Final = signed("proven", "gateway", "The gateway before it has signed.")
WRONG: Final = signed("wrong", "gateway", "The signature is of another key.")


@pytest.mark.parametrize(
    ("exchanges", "paragraphs"),
    [
        ([PROVEN], ["The model's machine has signed."]),
        ([GATEWAY, GATEWAY], ["The gateway before it has signed."]),
        (
            [PROVEN, signed("waiting"), PROVEN],
            [
                "In 2 of 3 cases: The model's machine has signed.",
                "In 1 of 3 cases: The signature is not checked yet. Ask again in a minute.",
            ],
        ),
        ([WRONG], ["The signature is of another key.\nDo not rely on the answer."]),
        (
            [signed("missing", words="The endpoint has none.")],
            ["The endpoint has none.\nSo nothing proves which model answered."],
        ),
        (
            [signed("unattested", words="Nobody vouches for the key.")],
            ["Nobody vouches for the key."],
        ),
    ],
)
async def test_last_explains_each_signature(
    exchanges: list[StoredExchange], paragraphs: list[str]
) -> None:
    asked = bot_with(None, {str(PRIVATE): exchanges})
    reply = await asked.ask("last")
    title, *found, ending = reply.text.split("\n\n")
    assert title.startswith("WHO SIGNED MY LAST ANSWER")
    assert ("I asked the model" in title) == (len(exchanges) > 1)
    assert found == paragraphs
    assert "!verify" in ending
