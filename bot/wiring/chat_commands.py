"""The commands that people send, such as `!help`."""

from bot import __version__
from bot.commands import catalog as command_catalog
from bot.commands.base import Command
from bot.commands.clear import Clear
from bot.commands.models import Models
from bot.commands.pair import Pair
from bot.commands.status import Status
from bot.commands.stop import Stop
from bot.commands.tools import Tools
from bot.commands.trust import TrustCommand
from bot.commands.verify import Verify
from bot.config.settings import Settings
from bot.dispatch.incoming.access import Access
from bot.dispatch.incoming.identities import Identities
from bot.dispatch.incoming.pairing import Pairing
from bot.dispatch.turns.running import Turns
from bot.wiring.ground import Ground


def chat_commands(
    settings: Settings,
    ground: Ground,
    *,
    access: Access,
    identities: Identities,
    pairing: Pairing,
    turns: Turns,
) -> dict[str, Command]:
    """Return the commands by name, without the exclamation mark.

    Args:
        settings: which model answers, and whether anybody but the owner may write.
        ground: what commands tell about.
        access: who is an admin, and whether codes let people in.
        identities: whose keys admins may trust.
        pairing: the codes.
        turns: what `!stop` ends.
    """
    trust = TrustCommand(identities, access)
    for_admins: tuple[Command, ...] = (trust,)
    if access.pairing:
        for_admins = (Pair(pairing, access), trust)
    return command_catalog.build(
        (
            Clear(ground.store.turns, ground.messenger, access),
            Models(ground.endpoint.client, settings.llm.model),
            Tools(ground.registry),
            Status(
                version=__version__,
                model=settings.llm.model,
                model_state=ground.endpoint.proof,
                registry=ground.registry,
                sandboxes=ground.sandboxes,
                workload=turns,
                connection=ground.messenger,
                store=ground.store.upkeep,
                admins=access,
            ),
            Stop(turns),
            Verify(ground.prover, ground.endpoint.proof, ground.store.exchanges),
        ),
        for_admins=() if settings.access.note_to_self else for_admins,
        admins=access,
    )
