"""What can go wrong while evidence is made or fetched. A check that fails is no error.

AttestationError
├── AgentError             the dstack guest agent is not there, silent, or answers nonsense
├── EvidenceUnavailable    a service (PCCS, NRAS, the model's endpoint) gave no usable answer
│   ├── AttestationNotOffered  because it knows nothing of attestation
│   └── AnswerTooLong          because it sends more than this program reads
├── MalformedEvidence      the input is not a valid quote, log, report or bundle
└── ModelNotVerified       nothing may be sent to the model now; carries the sentence that says why

No message of these errors holds what a person wrote.
"""

from bot.errors import BotError


class AttestationError(BotError):
    """Evidence could not be made, fetched or read; the message is a plain sentence."""


class AgentError(AttestationError):
    """The dstack guest agent is not there, does not answer, or answers nonsense."""


class EvidenceUnavailable(AttestationError):
    """A service that evidence comes from is down, slow, limits the rate, or answers garbage.

    Its message is the end of a sentence; `retry_after_seconds` is what the service asked for.
    """

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class AttestationNotOffered(EvidenceUnavailable):
    """The model's endpoint knows nothing of attestation."""


class AnswerTooLong(EvidenceUnavailable):
    """A service answered with more bytes than this program reads."""


class MalformedEvidence(AttestationError):
    """The input is not valid evidence."""


class ModelNotVerified(AttestationError):
    """The model is not verified now, so nothing may be sent; `sentence` tells the person why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
