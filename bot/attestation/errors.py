"""What can go wrong while evidence is made or fetched. A check that fails is no error.

AttestationError
├── AgentError             the dstack guest agent is not there, silent, or answers nonsense
├── EvidenceUnavailable    a service (PCCS, NRAS, the model's endpoint) gave no usable answer
└── MalformedEvidence      what should be a quote, a log, a report or a bundle is none

No message of these errors holds what a person wrote.
"""

from bot.errors import BotError


class AttestationError(BotError):
    """Evidence could not be made, fetched or read; the message is a plain sentence."""


class AgentError(AttestationError):
    """The dstack guest agent is not there, does not answer, or answers nonsense."""


class EvidenceUnavailable(AttestationError):
    """A service that evidence comes from is down, slow, limits the rate, or answers garbage."""


class MalformedEvidence(AttestationError):
    """Bytes that should be evidence are none."""
