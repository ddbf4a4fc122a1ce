"""What the bot does with what people write, as far as its settings decide it."""

from dataclasses import dataclass

from bot.attestation.canonical import canonical_json
from bot.attestation.near_ai.pins import pins_sha256
from bot.attestation.quote import ACCEPTED_TCB
from bot.attestation.statement import ModelPolicy


@dataclass(frozen=True, slots=True)
class Policy:
    """What goes with a statement; the statement holds its SHA-256.

    Attributes:
        signal: where signal-cli is, which holds the account's keys: `unix socket`, or a host.
        llm_host: host name of the model's endpoint.
        model: its name there.
        model_policy: what happens while the model is not verified.
        other_models: further ones that a chat may choose or be answered by, as `model at host`;
            nothing in a proof is about them.
        workspace: who has a folder for files, in which tools read and write: `admins`, `everyone`,
            `nobody`; empty where nothing is said of it.
        commands: which commands that run there a person is asked about: `ask`, `dangerous`,
            `never`, or `off` where none can run; empty where nothing is said of it.
        commands_network: whether they reach the internet: `on` or `off`; empty where nothing is
            said of it.
        model_pins: JSON text, which machines count as the model's; None: any.
        e2ee: whether what is sent to the model is encrypted to it.
        retention_days: how long conversations are kept; 0 is not past the turn.
    """

    signal: str
    llm_host: str
    model: str
    model_policy: ModelPolicy
    e2ee: bool
    retention_days: int
    workspace: str = ""
    commands: str = ""
    commands_network: str = ""
    model_pins: str | None = None
    other_models: tuple[str, ...] = ()

    @property
    def model_pins_sha256(self) -> str | None:
        """How policy and statement name the pins, hex."""
        return pins_sha256(self.model_pins) if self.model_pins is not None else None

    def text(self) -> str:
        """Return the one line of canonical JSON that is hashed."""
        optional = {
            "commands": self.commands,
            "commands_network": self.commands_network,
            "other_models": sorted(self.other_models),
            "workspace": self.workspace,
        }
        return canonical_json(
            {
                **{name: value for name, value in optional.items() if value},
                "accepted_tcb": sorted(ACCEPTED_TCB),
                "e2ee": self.e2ee,
                "llm_host": self.llm_host,
                "model": self.model,
                "model_pins_sha256": self.model_pins_sha256,
                "model_policy": self.model_policy,
                "retention_days": self.retention_days,
                "signal": self.signal,
                "signer_pins": [],
                "type": "signal-bot-policy",
                "v": 1,
            }
        )
