"""`!verify`: what this bot can prove about itself."""

from typing import Final

from bot.commands.base import CommandContext

NOT_IN_TEE: Final = (
    "This bot does not run in a trusted execution environment, so there is nothing to prove:"
    " whoever operates it can read what you write here, and so may the provider of the model."
)
NOT_PROVEN: Final = (
    "This bot seems to run in a trusted execution environment, but this version cannot prove it."
    " Treat it as unproven: whoever operates it may be able to read what you write here."
)


class Verify:
    """Answers honestly; proof comes with the attestation of a later version."""

    name = "verify"
    summary = "what I can prove about who reads along"
    urgent = False

    def __init__(self, *, in_tee: bool) -> None:
        self._in_tee = in_tee

    async def run(self, context: CommandContext) -> str:
        """Say what is not proven."""
        return NOT_PROVEN if self._in_tee else NOT_IN_TEE
