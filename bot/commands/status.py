"""`!status`: how busy the bot is, and what answers here; for admins also whether all is well."""

import time
from collections.abc import Callable, Iterator
from typing import Protocol

from bot.commands.base import AdminList, CommandContext, Reply
from bot.llm.model import Model
from bot.messaging.messenger import Messenger
from bot.observability.figures import ProcessFigures, duration, process_figures, size
from bot.observability.logs import Trouble, last_trouble
from conversation_store.models import ChatId, StoreSizes
from conversation_store.sections.upkeep import StoreUpkeep
from sandbox.policy import SandboxPolicy
from tools.registry import Registry


class Workload(Protocol):
    """What is in progress. Implemented by `bot.dispatch.turns.running.Turns`."""

    @property
    def running(self) -> int:
        """How many turns are in progress."""
        ...


class ChatModels(Protocol):
    """Which model answers each chat. Implemented by `bot.llm.models.Models`."""

    def __iter__(self) -> Iterator[Model]:
        """Go through all of them."""
        ...

    def of(self, chat: ChatId) -> Model:
        """Return the model that answers a chat."""
        ...


class Status:
    """Says version, model, uptime and load; to admins, in private, how the bot itself is.

    Nothing in it is about anybody.

    Args:
        version: of the program.
        models: which one answers a chat, and how their endpoints fare.
        registry: the tools.
        sandboxes: what is known of the walls around them.
        workload: the answers in progress.
        connection: the way to Signal.
        store: what is kept.
        admins: who hears more.
        clock: in seconds, never goes back.
        figures: what the process takes.
        trouble: what was logged last as a warning or worse.
    """

    name = "status"
    summary = "how busy I am, and which model answers"
    urgent = False

    def __init__(
        self,
        *,
        version: str,
        models: ChatModels,
        registry: Registry,
        sandboxes: SandboxPolicy,
        workload: Workload,
        connection: Messenger,
        store: StoreUpkeep,
        admins: AdminList,
        clock: Callable[[], float] = time.monotonic,
        figures: Callable[[], ProcessFigures | None] = process_figures,
        trouble: Callable[[], Trouble | None] = last_trouble,
    ) -> None:
        self._version = version
        self._models = models
        self._registry = registry
        self._sandboxes = sandboxes
        self._workload = workload
        self._connection = connection
        self._store = store
        self._admins = admins
        self._clock = clock
        self._figures = figures
        self._trouble = trouble
        self._started_at = clock()

    async def run(self, context: CommandContext) -> Reply:
        """Return a few lines."""
        lines = list(self._for_everybody(self._models.of(context.chat)))
        if self._admins.is_admin(context.author) and not context.chat.is_group:
            lines += self._for_admins(await self._store.sizes())
        return Reply("\n".join(lines))

    def _for_everybody(self, model: Model) -> Iterator[str]:
        yield f"signal-tee-bot {self._version}, up for {self._since(self._started_at)}"
        yield f"Model: {model.id}. {model.proof.summary()}"
        yield f"Tools: {', '.join(tool.name for tool in self._registry) or 'none'}"
        yield f"Answers in progress: {self._workload.running}"

    def _for_admins(self, sizes: StoreSizes) -> Iterator[str]:
        waiting = f"{sizes.waiting_messages} to answer, {sizes.waiting_sends} to send"
        store = size(sizes.file_bytes + sizes.log_bytes)
        yield ""
        yield f"Signal: {self._signal()}"
        for model in self._models:
            if (trouble := model.client.reach.trouble) is not None:
                yield f"Endpoint of the model {model.name}: {trouble}"
        yield f"Waiting: {waiting}"
        yield f"Store: {store}, {size(sizes.disk_free_bytes)} free on its disk"
        if (figures := self._figures()) is not None:
            limit = f"{figures.descriptors:,} of {figures.descriptor_limit:,} files open"
            yield f"Process: {size(figures.memory_bytes)} of memory, {limit}"
        if missing := self._sandboxes.missing:
            yield f"Sandboxes: without {', '.join(missing)}, which this machine lacks"
        if (last := self._trouble()) is not None:
            kind = f" ({last.kind})" if last.kind else ""
            yield f"Last trouble: {last.event}{kind}, {self._since(last.at)} ago"

    def _signal(self) -> str:
        since = self._connection.connected_since
        return "not connected" if since is None else f"connected for {self._since(since)}"

    def _since(self, moment: float) -> str:
        return duration(self._clock() - moment)
