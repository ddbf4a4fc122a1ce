"""The commands that people send, such as `!help`."""

from bot import __version__
from bot.commands import catalog as command_catalog
from bot.commands.base import Command
from bot.commands.clear import Clear
from bot.commands.language import Language
from bot.commands.models import Models
from bot.commands.pair import Pair
from bot.commands.status import Status
from bot.commands.stop import Stop
from bot.commands.tools import Tools
from bot.commands.trust import TrustCommand
from bot.commands.verify import Prover, Verify
from bot.config.settings import Settings
from bot.dispatch.incoming.access import Access
from bot.dispatch.incoming.identities import Identities
from bot.dispatch.incoming.pairing import Pairing
from bot.dispatch.turns.running import Turns
from bot.language.languages import Languages
from bot.messaging.messenger import Messenger
from bot.wiring.endpoint import OpenEndpoint
from conversation_store.store import ConversationStore
from sandbox.policy import SandboxPolicy
from tools.registry import Registry


def chat_commands(
    settings: Settings,
    *,
    store: ConversationStore,
    messenger: Messenger,
    endpoint: OpenEndpoint,
    prover: Prover | None,
    registry: Registry,
    sandboxes: SandboxPolicy,
    access: Access,
    identities: Identities,
    pairing: Pairing,
    turns: Turns,
    languages: Languages,
) -> dict[str, Command]:
    """Return the commands by name, without the exclamation mark."""
    trust = TrustCommand(identities, access)
    for_admins: tuple[Command, ...] = (trust,)
    if access.pairing:
        for_admins = (Pair(pairing, access), trust)
    return command_catalog.build(
        (
            Clear(store.turns, messenger, access),
            Models(endpoint.client, settings.llm.model),
            Tools(registry),
            Status(
                version=__version__,
                model=settings.llm.model,
                model_state=endpoint.proof,
                endpoint=endpoint.client.reach,
                registry=registry,
                sandboxes=sandboxes,
                workload=turns,
                connection=messenger,
                store=store.upkeep,
                admins=access,
            ),
            Stop(turns),
            Language(languages),
            Verify(prover, endpoint.proof, store.exchanges),
        ),
        for_admins=() if settings.access.note_to_self else for_admins,
        admins=access,
    )
