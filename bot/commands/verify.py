"""`!verify`: what this bot can prove about itself, with a file that a stranger can check."""

import math
import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from bot.attestation.chat_report import FILE_NAME, chat_report
from bot.attestation.errors import AttestationError
from bot.attestation.statement import MAX_CHALLENGE_BYTES
from bot.commands.base import CommandContext, Reply
from bot.commands.last_answer import last_answer
from bot.errors import SignalError
from bot.messaging.events import Person
from conversation_store.models import Attachment, ChatId, StoredExchange

if TYPE_CHECKING:
    # By its name alone: the verification behind it is loaded where there is something to prove.
    from bot.attestation.proof import Proof

PROOFS_PER_MINUTE: Final = 5
MINUTE_SECONDS: Final = 60.0
CHALLENGE_BYTES: Final = 8
LAST: Final = "last"

NOT_IN_TEE: Final = (
    "This bot does not run in a trusted execution environment, so there is nothing to prove:"
    " whoever operates it can read what you write here, and so may the provider of the model."
)
NO_PROOF: Final = (
    "I cannot prove anything right now. {why} Until I can, treat me as if my operator could read"
    " what you write."
)
NO_ACCOUNT: Final = "The Signal side does not tell me which account and key are mine."
TOO_LONG: Final = (
    f"That is too long for a challenge: send !verify and up to {MAX_CHALLENGE_BYTES} letters."
)
NOT_ONE_LINE: Final = "A challenge is one line of ordinary letters: send !verify and a few words."
TOO_MANY: Final = (
    f"I make up to {PROOFS_PER_MINUTE} proofs a minute for you. Ask again in {{seconds}} s."
)

log = structlog.get_logger()


class Prover(Protocol):
    """What makes proofs. Implemented by `bot.attestation.proof.OwnProof`."""

    async def make(self, challenge: str) -> "Proof":
        """Return a proof; AttestationError or SignalError when there can be none."""
        ...


class ModelSummary(Protocol):
    """What is known of the models. Implemented by `bot.llm.models.Models`."""

    def summary(self, chat: ChatId) -> str:
        """Return in a few sentences whether it is proven which model answers a chat, and where."""
        ...


class LastAnswer(Protocol):
    """Where signatures are kept. Implemented by `ExchangeStore`."""

    async def of_last_answer(self, chat: ChatId) -> Sequence[StoredExchange]:
        """Return the exchanges with the model behind the last answer in a chat."""
        ...


class Verify:
    """Proves what can be proven, and says what cannot.

    Args:
        prover: makes proofs; None where there is no trusted execution environment.
        model: says what is known of the model that answers a chat.
        answers: knows the signatures of answers.
        clock: seconds that never go back.
    """

    name = "verify"
    summary = "what I can prove about who reads along"
    urgent = False

    def __init__(
        self,
        prover: Prover | None,
        model: ModelSummary,
        answers: LastAnswer,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prover = prover
        self._model = model
        self._answers = answers
        self._rate = _ProofRate(clock)

    async def run(self, context: CommandContext) -> Reply:
        """Make a proof for the challenge that follows the word, or show the last signatures."""
        challenge = context.argument.strip()
        if challenge.casefold() == LAST:
            return Reply(last_answer(await self._answers.of_last_answer(context.chat)))
        if self._prover is None:
            return Reply(f"{NOT_IN_TEE}\n\nTHE MODEL\n{self._model.summary(context.chat)}")
        if not challenge.isprintable():
            return Reply(NOT_ONE_LINE)
        if len(challenge.encode()) > MAX_CHALLENGE_BYTES:
            return Reply(TOO_LONG)
        if seconds := self._rate.wait(context.author):
            return Reply(TOO_MANY.format(seconds=seconds))
        return await self._prove(self._prover, challenge, context.chat)

    async def _prove(self, prover: Prover, chosen: str, chat: ChatId) -> Reply:
        challenge = chosen or secrets.token_hex(CHALLENGE_BYTES)
        try:
            proof = await prover.make(challenge)
            text = chat_report(
                proof,
                challenge=challenge,
                chosen=bool(chosen),
                in_group=chat.is_group,
                model=self._model.summary(chat),
            )
        except AttestationError as error:
            log.warning("verify.failed", error=type(error).__name__)
            return self._no_proof(str(error), chat)
        except SignalError as error:
            log.warning("verify.failed", error=type(error).__name__)
            return self._no_proof(NO_ACCOUNT, chat)
        return Reply(text, (Attachment(FILE_NAME, "application/json", proof.bundle.to_json()),))

    def _no_proof(self, why: str, chat: ChatId) -> Reply:
        return Reply(f"{NO_PROOF.format(why=why)}\n\nTHE MODEL\n{self._model.summary(chat)}")


class _ProofRate:
    """Counts the proofs of everyone's last minute; what is older is forgotten."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._made: dict[str, list[float]] = {}

    def wait(self, person: Person) -> int:
        """Return 0 and count a proof, or the seconds until there may be one."""
        now = self._clock()
        recent = {
            aci: [at for at in times if now - at < MINUTE_SECONDS]
            for aci, times in self._made.items()
        }
        self._made = {aci: times for aci, times in recent.items() if times}
        times = self._made.setdefault(person.aci, [])
        if len(times) < PROOFS_PER_MINUTE:
            times.append(now)
            return 0
        return math.ceil(times[0] + MINUTE_SECONDS - now)
