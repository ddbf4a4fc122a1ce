"""Errors of attestation; each message is a plain sentence, or the end of one.

Functions that read a document raise MalformedEvidence, those that ask a service raise
EvidenceUnavailable, and those that ask the guest agent raise AgentError. Docstrings name an error
only if it says more.

AgentError
EvidenceUnavailable
    AttestationNotOffered
    AnswerTooLong
MalformedEvidence
ModelNotVerified
"""

from bot.errors import BotError


class AgentError(BotError):
    """The dstack guest agent is missing, does not answer, or answers nonsense."""


class EvidenceUnavailable(BotError):
    """A service is down or slow, limits the rate, or answers garbage.

    The message is the end of a sentence.
    """

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class AttestationNotOffered(EvidenceUnavailable):
    """The model's endpoint does not offer attestation."""


class AnswerTooLong(EvidenceUnavailable):
    """A service answered with more bytes than this program reads."""


class MalformedEvidence(BotError):
    """The input is not valid evidence."""


class ModelNotVerified(BotError):
    """Nothing may be sent to the model now; the message is for the person."""
