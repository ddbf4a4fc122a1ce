"""`!verify`: proofs about the bot, with a file that anyone can check."""

import secrets
from collections import Counter
from collections.abc import Sequence
from typing import Final

import structlog

from bot.attestation.bundle import MAX_CHALLENGE_BYTES
from bot.attestation.report import FILE_NAME, chat_report
from bot.commands.base import CommandContext, Prover, Reply, command
from bot.errors import BotError
from bot.signal.errors import SignalError
from conversation_store.models import Attachment, StoredExchange

CHALLENGE_BYTES: Final = 8

NOT_IN_TEE: Final = (
    "This bot does not run in a trusted execution environment, so there is nothing to prove: its"
    " operator can read what you write here, and so may the provider of the model."
)
NO_SIGNATURES: Final = (
    "There are no signatures to show: I have not answered in this chat yet, or my answer is already"
    " deleted, or the model does not sign its answers. So nothing proves which model wrote to you."
)
CONSEQUENCES: Final = {
    "wrong": "Do not rely on the answer.",
    "missing": "So nothing proves which model answered.",
}

log = structlog.get_logger()


@command("verify", "show what I can prove about who can read along")
async def verify(context: CommandContext) -> Reply | str:
    """Make a proof for the challenge after the command, or show the last answer's signatures."""
    challenge, prover = context.argument.strip(), context.parts.prover
    if challenge.casefold() == "last":
        exchanges = await context.parts.store.exchanges.of_last_answer(context.chat)
        return signatures(exchanges)
    if prover is None:
        return _with_model(NOT_IN_TEE, context)
    if not challenge.isprintable():
        return "A challenge is one line of ordinary letters: send !verify and a few words."
    if len(challenge.encode()) > MAX_CHALLENGE_BYTES:
        return (
            "That challenge is too long. Send !verify and a few words, at most"
            f" {MAX_CHALLENGE_BYTES} bytes."
        )
    prover.admit(context.author)
    try:
        return await _proof(context, prover, challenge)
    except BotError as error:
        log.warning("verify.failed", error=type(error).__name__)
        why = str(error)
        if isinstance(error, SignalError):
            why = "The Signal side does not tell me which account and key are mine."
        text = (
            f"I cannot prove anything right now. {why} Until I can, treat me as if my operator"
            " could read what you write."
        )
        return _with_model(text, context)


async def _proof(context: CommandContext, prover: Prover, chosen: str) -> Reply:
    challenge = chosen or secrets.token_hex(CHALLENGE_BYTES)
    bundle, report = await prover.make(challenge)
    text = chat_report(
        bundle,
        report,
        challenge=challenge,
        chosen=bool(chosen),
        in_group=context.chat.is_group,
        model=context.parts.models.summary(context.chat),
    )
    return Reply(text, (Attachment(FILE_NAME, "application/json", bundle.to_json()),))


def _with_model(text: str, context: CommandContext) -> str:
    return "\n".join((text, "", "THE MODEL", context.parts.models.summary(context.chat)))


def signatures(exchanges: Sequence[StoredExchange]) -> str:
    """Explain the signatures of an answer's requests to the model."""
    if not exchanges:
        return NO_SIGNATURES
    total = len(exchanges)
    title, asked = "WHO SIGNED MY LAST ANSWER", f"I asked the model {total} times for it."
    paragraphs = [f"{title}\n{asked}" if total > 1 else title]
    for meaning, count in Counter(map(_meaning, exchanges)).items():
        paragraphs.append(meaning if count == total else f"In {count} of {total} cases: {meaning}")
    paragraphs.append("I checked this myself; !verify shows whether you can believe me.")
    return "\n\n".join(paragraphs)


def _meaning(exchange: StoredExchange) -> str:
    if exchange.state == "waiting":
        return "The signature is not checked yet. Ask again in a minute."
    return "\n".join(filter(None, (exchange.message, CONSEQUENCES.get(exchange.state))))
