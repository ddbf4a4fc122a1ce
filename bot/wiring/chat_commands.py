"""The commands that people send, such as `!help`."""

from collections.abc import Callable
from functools import partial

from bot import __version__
from bot.commands import catalog as command_catalog
from bot.commands.base import Command, CommandContext
from bot.commands.catchup import CatchUp
from bot.commands.clear import Clear
from bot.commands.files import Files
from bot.commands.grants import Grants
from bot.commands.instructions import InstructionsCommand
from bot.commands.language import Language
from bot.commands.memory import MemoryCommand
from bot.commands.model import ModelCommand
from bot.commands.models import Models
from bot.commands.pair import Pair
from bot.commands.plan import PlanCommand
from bot.commands.reminders import RemindersCommand
from bot.commands.retry import RetryCommand
from bot.commands.status import Status
from bot.commands.stop import Stop
from bot.commands.timezone import TimezoneCommand
from bot.commands.tools import Tools
from bot.commands.trust import TrustCommand
from bot.commands.undo import Undo
from bot.commands.usage import UsageCommand
from bot.commands.verify import Prover, Verify
from bot.config.settings import Settings
from bot.dispatch.incoming.access import Access
from bot.dispatch.incoming.identities import Identities
from bot.dispatch.incoming.pairing import Pairing
from bot.dispatch.turns.budget import TokenBudget
from bot.dispatch.turns.running import Turns
from bot.language.languages import Languages
from bot.messaging.messenger import Messenger
from bot.wiring.models import OpenModels
from bot.wiring.own_tools import uses_memory
from conversation_store.second_thoughts import CHANGEABLE_MS
from conversation_store.store import ConversationStore
from sandbox.policy import SandboxPolicy
from tools.registry import Registry
from tools.workspace.workspaces import Workspace, Workspaces


def chat_commands(
    settings: Settings,
    *,
    store: ConversationStore,
    messenger: Messenger,
    models: OpenModels,
    prover: Prover | None,
    registry: Registry,
    workspaces: Workspaces | None,
    sandboxes: SandboxPolicy,
    access: Access,
    identities: Identities,
    pairing: Pairing,
    turns: Turns,
    languages: Languages,
    clock: Callable[[], float],
    reminders_changed: Callable[[], None],
) -> dict[str, Command]:
    """Return the commands by name, without the exclamation mark."""
    trust = TrustCommand(identities, access)
    for_admins: tuple[Command, ...] = (trust,)
    if access.pairing:
        for_admins = (Pair(pairing, access), trust)
    of_files: tuple[Command, ...] = ()
    folder_of = partial(_folder_of, workspaces, access)
    if workspaces is not None:
        of_files = (Files(folder_of),)
        if workspaces.admins_only:
            for_admins, of_files = (*for_admins, *of_files), ()
    return command_catalog.build(
        (
            Clear(
                turns,
                messenger,
                access,
                memory=store.memory,
                instructions=store.instructions,
                reminders=store.reminders,
                clear_files=workspaces.clear if workspaces else None,
            ),
            Models(models.default.client, settings.llm.model),
            ModelCommand(models.models, messenger, access),
            Tools(registry, access),
            Grants(store.grants, messenger, access),
            RemindersCommand(store.reminders),
            TimezoneCommand(store.reminders, reminders_changed, clock=clock),
            Status(
                version=__version__,
                models=models.models,
                registry=registry,
                sandboxes=sandboxes,
                workload=turns,
                connection=messenger,
                store=store.upkeep,
                admins=access,
            ),
            UsageCommand(store.usage, TokenBudget(access, store.usage, clock=clock), access),
            PlanCommand(),
            Stop(turns),
            CatchUp(store.catch_up, messenger, access),
            RetryCommand(store.turns, models.models, messenger, access),
            Undo(
                store.turns,
                folder_of,
                messenger,
                access,
                changeable_seconds=CHANGEABLE_MS / 1_000,
                clock=clock,
            ),
            MemoryCommand(
                store.memory,
                messenger,
                access,
                is_used=uses_memory(settings),
                retention_days=lambda: store.retention_days,
            ),
            InstructionsCommand(store.instructions, messenger, access),
            Language(languages),
            Verify(prover, models.models, store.exchanges),
            *of_files,
        ),
        for_admins=() if settings.access.note_to_self else for_admins,
        admins=access,
    )


def _folder_of(
    workspaces: Workspaces | None, access: Access, context: CommandContext
) -> Workspace | None:
    """Return the workspace of a chat for whoever asks there; None where they have none."""
    if workspaces is None:
        return None
    if workspaces.admins_only and not access.is_admin(context.author):
        return None
    return workspaces.of(context.chat, person=context.author.aci)
