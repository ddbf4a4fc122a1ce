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
    """

    people: frozenset[str] | None
    since: int
    until: int

    def may_be(self, timestamp: int, confirmed_by: AbstractSet[str]) -> bool:
        """Whether it can have a timestamp that some people confirmed."""
        reached = self.people is None or confirmed_by <= self.people
        return reached and self.since <= timestamp < self.until


def proven(
    candidates: Sequence[Candidate], confirmed: Mapping[int, AbstractSet[str]]
) -> dict[int, int]:
    """Return which candidates were sent for certain, and with which timestamps.

    Where several timestamps may belong to several candidates that were all sent, earlier ones go
    to earlier candidates.

    Args:
        candidates: messages that may have been sent, each once at the most.
        confirmed: timestamps that belong to none but them, and who confirmed each.
    """
    matching = _Matching(candidates, confirmed)
    for timestamp in sorted(confirmed):
        matching.explain(timestamp)
    return matching.essential()


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
        self._count = len(candidates)
        self._explains: dict[int, int] = {}
        self._explained_by: dict[int, int] = {}

    def explain(self, timestamp: int) -> None:
        """Find a candidate for one more timestamp; others may get another one for it."""
        wanted_by: dict[int, int] = {}
        looking = [timestamp]
        for one in looking:
            for candidate in self._candidates[one]:
                if candidate in wanted_by:
                    continue
                wanted_by[candidate] = one
                if candidate not in self._explains:
                    self._hand_on(candidate, wanted_by)
                    return
                looking.append(self._explains[candidate])

    def _hand_on(self, candidate: int | None, wanted_by: Mapping[int, int]) -> None:
        while candidate is not None:
            timestamp = wanted_by[candidate]
            given_up = self._explained_by.get(timestamp)
            self._explains[candidate] = timestamp
            self._explained_by[timestamp] = candidate
            candidate = given_up

    def essential(self) -> dict[int, int]:
        """Return the candidates that no other can stand in for, and their timestamps."""
        free = [number for number in range(self._count) if number not in self._explains]
        replaceable = set(free)
        for candidate in free:
            for timestamp in self._timestamps[candidate]:
                other = self._explained_by.get(timestamp)
                if other is not None and other not in replaceable:
                    replaceable.add(other)
                    free.append(other)
        return {
            candidate: self._surest(candidate, timestamp)
            for candidate, timestamp in self._explains.items()
            if candidate not in replaceable
        }

    def _surest(self, candidate: int, otherwise: int) -> int:
        """Return a timestamp that no other candidate can have; a message may have several."""
        own = (one for one in self._timestamps[candidate] if self._candidates[one] == [candidate])
        return min(own, default=otherwise)
