"""`!usage`: how many tokens somebody's questions took."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

from bot.commands.base import AdminList, CommandContext, Reply
from bot.messaging.events import Person
from conversation_store.models import TokenSum

DAYS: Final = 30

TODAY: Final = "Today: {tokens} tokens."
LATELY: Final = "In 30 days: {tokens} tokens."
LEFT: Final = "{left} of {limit} are left for today. The next day begins at 00:00 UTC, in {wait}."
ESTIMATED: Final = "Some of that is estimated, because a model's endpoint does not count."
ALL: Final = "Everybody together ({people}): {today} tokens today, {lately} in 30 days."


class Usage(Protocol):
    """What was used. Implemented by `conversation_store.sections.usage.UsageStore`."""

    async def of_person(self, person: str, days: int) -> dict[str, TokenSum]:
        """Return what a person's questions have taken in so many days up to today, by model."""
        ...

    async def of_all(self, days: int) -> tuple[TokenSum, int]:
        """Return what everybody's questions have taken in so many days, and how many asked."""
        ...


class Budget(Protocol):
    """What may be used. Implemented by `bot.dispatch.turns.budget.TokenBudget`."""

    def of(self, person: Person) -> int:
        """Return how many tokens somebody may use in a day; 0: there is no bound."""
        ...

    @property
    def wait(self) -> str:
        """How long it is until the next day."""
        ...


class UsageCommand:
    """Says what somebody's questions took; to admins, in private, also those of all together.

    Args:
        usage: what was used.
        budget: what may be used.
        admins: who hears more.
    """

    name = "usage"
    summary = "how many tokens your questions took"
    urgent = False

    def __init__(self, usage: Usage, budget: Budget, admins: AdminList) -> None:
        self._usage = usage
        self._budget = budget
        self._admins = admins

    async def run(self, context: CommandContext) -> Reply:
        """Return a few lines."""
        person = context.author
        today = await self._usage.of_person(person.aci, 1)
        lately = await self._usage.of_person(person.aci, DAYS)
        lines = [TODAY.format(tokens=_number(_total(today.values())))]
        if limit := self._budget.of(person):
            left = max(0, limit - _total(today.values()))
            lines.append(
                LEFT.format(left=_number(left), limit=_number(limit), wait=self._budget.wait)
            )
        lines += _by_model(lately)
        sums = [*lately.values()]
        if self._admins.is_admin(person) and not context.chat.is_group:
            today_of_all, _ = await self._usage.of_all(1)
            of_all, people = await self._usage.of_all(DAYS)
            sums.append(of_all)
            lines.append(
                ALL.format(
                    people=people, today=_number(today_of_all.total), lately=_number(of_all.total)
                )
            )
        if any(one.is_estimated for one in sums):
            lines.append(ESTIMATED)
        return Reply("\n".join(lines))


def _by_model(lately: Mapping[str, TokenSum]) -> Iterator[str]:
    yield LATELY.format(tokens=_number(_total(lately.values())))
    if len(lately) > 1:
        yield from (f"• {model}: {_number(took.total)}" for model, took in lately.items())


def _total(sums: Iterable[TokenSum]) -> int:
    return sum(one.total for one in sums)


def _number(count: int) -> str:
    return f"{count:,}"
