"""Which messages must be among those that phones confirmed.

A receipt names a message of the bot by its timestamp alone. After a crash the bot does not know
the timestamps of the messages that were on their way, so a confirmed timestamp that it does not
know may belong to any of those that could have reached the person. A message counts as sent only
where the confirmed timestamps cannot all be explained without it. In terms of graphs: timestamps
and messages are the two sides of a bipartite graph, and the message is matched in every maximum
matching (A. L. Dulmage and N. S. Mendelsohn, Coverings of bipartite graphs, 1958).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A message that may have been sent.

    Attributes:
        people: ACIs of those who get it; None where they are not known.
        since: the earliest timestamp that it can have, in ms.
        until: its timestamp is an earlier one, in ms.
        times: how often it may have been sent, each time with a timestamp of its own.
    """

    people: frozenset[str] | None
    since: int
    until: int
    times: int = 1

    def may_be(self, timestamp: int, confirmed_by: AbstractSet[str]) -> bool:
        """Whether it can have a timestamp that some people confirmed."""
        reached = self.people is None or confirmed_by <= self.people
        return reached and self.since <= timestamp < self.until


def proven(
    candidates: Sequence[Candidate],
    confirmed: Mapping[int, AbstractSet[str]],
    others: Sequence[Candidate] = (),
) -> dict[int, int]:
    """Return which candidates were sent for certain, and with which timestamps.

    Where several timestamps may belong to several candidates that were all sent, earlier ones go
    to earlier candidates.

    Args:
        candidates: messages that may have been sent.
        confirmed: timestamps that belong to none but them and the others, and who confirmed each.
        others: more messages that may have been sent, of which nobody wants to know.
    """
    matching = _Matching([*candidates, *others], confirmed)
    for timestamp in sorted(confirmed):
        matching.explain(timestamp)
    return matching.essential(len(candidates))


class _Matching:
    """Timestamps, each explained by a candidate of its own, as many as can be."""

    def __init__(
        self, candidates: Sequence[Candidate], confirmed: Mapping[int, AbstractSet[str]]
    ) -> None:
        of_person: defaultdict[str, list[int]] = defaultdict(list)
        of_anybody = []
        for number, one in enumerate(candidates):
            if one.people is None:
                of_anybody.append(number)
            for person in one.people or ():
                of_person[person].append(number)
        self._candidates: dict[int, list[int]] = {}
        self._timestamps: defaultdict[int, list[int]] = defaultdict(list)
        for timestamp, people in confirmed.items():
            somebodys = of_person[next(iter(people))] if people else ()
            self._candidates[timestamp] = [
                number
                for number in sorted((*somebodys, *of_anybody))
                if candidates[number].may_be(timestamp, people)
            ]
            for number in self._candidates[timestamp]:
                self._timestamps[number].append(timestamp)
        self._times = [one.times for one in candidates]
        self._explains: defaultdict[int, list[int]] = defaultdict(list)
        self._explained_by: dict[int, int] = {}
        self._exhausted: set[int] = set()

    def explain(self, timestamp: int) -> bool:
        """Find a candidate for one more timestamp; others may get another one for it."""
        wanted_by: dict[int, int] = {}
        looking = [timestamp]
        for one in looking:
            for candidate in self._candidates[one]:
                if candidate in wanted_by or candidate in self._exhausted:
                    continue
                wanted_by[candidate] = one
                if len(self._explains[candidate]) < self._times[candidate]:
                    self._hand_on(candidate, wanted_by)
                    return True
                looking.extend(self._explains[candidate])
        # From where a search has failed, no later one succeeds: each is looked at once in all.
        self._exhausted |= wanted_by.keys()
        return False

    def _hand_on(self, candidate: int | None, wanted_by: Mapping[int, int]) -> None:
        while candidate is not None:
            timestamp = wanted_by[candidate]
            given_up = self._explained_by.get(timestamp)
            if given_up is not None:
                self._explains[given_up].remove(timestamp)
            self._explains[candidate].append(timestamp)
            self._explained_by[timestamp] = candidate
            candidate = given_up

    def essential(self, count: int) -> dict[int, int]:
        """Return those of the first candidates that no other can stand in for, with timestamps."""
        replaceable = self._replaceable()
        return {
            candidate: self._surest(candidate, min(self._explains[candidate]))
            for candidate in range(count)
            if self._explains[candidate] and not self._can_do_without(candidate, replaceable)
        }

    def _replaceable(self) -> set[int]:
        """Return the candidates that can leave a timestamp to another one."""
        free = [one for one, times in enumerate(self._times) if len(self._explains[one]) < times]
        replaceable = {one for one in free if not self._explains[one]}
        reached = set(free)
        for candidate in free:
            for timestamp in self._timestamps[candidate]:
                other = self._explained_by.get(timestamp)
                if other is None or other == candidate:
                    continue
                replaceable.add(other)
                if other not in reached:
                    reached.add(other)
                    free.append(other)
        return replaceable

    def _can_do_without(self, candidate: int, replaceable: AbstractSet[int]) -> bool:
        """Whether others can explain all timestamps that a candidate explains."""
        if candidate not in replaceable:
            return False
        if len(self._explains[candidate]) == 1 and self._times[candidate] == 1:
            return True
        return self._without(candidate)

    def _without(self, candidate: int) -> bool:
        """Try it, and leave everything as it was."""
        before = {one: list(timestamps) for one, timestamps in self._explains.items()}
        explained_by, exhausted = dict(self._explained_by), set(self._exhausted)
        orphans = self._explains.pop(candidate)
        for timestamp in orphans:
            del self._explained_by[timestamp]
        self._exhausted.add(candidate)
        try:
            return all(self.explain(timestamp) for timestamp in orphans)
        finally:
            self._explains = defaultdict(list, before)
            self._explained_by, self._exhausted = explained_by, exhausted

    def _surest(self, candidate: int, otherwise: int) -> int:
        """Return a timestamp that no other candidate can have; a message may have several."""
        own = (one for one in self._timestamps[candidate] if self._candidates[one] == [candidate])
        return min(own, default=otherwise)
