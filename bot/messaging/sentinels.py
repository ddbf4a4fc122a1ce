"""Which requests signal-cli never took, although it answers what it was asked later.

signal-cli may fall silent for some seconds and then go on as if nothing had been asked meanwhile.
A late answer alone does not show that: a send may honestly take a minute. So a request takes a
sentinel along in the same write: a `version`, which signal-cli answers within milliseconds whatever
else it is doing, because its requests run concurrently. An answered sentinel shows that the request
before it was taken, too, and is only slow. A sentinel that stays without an answer while later
requests are answered shows that both were passed over.

What is passed over is found by looking about once a second while a sentinel is missing. Before each
look something is asked, so that a bot with nothing else to ask still hears that the silence ended.
"""

import itertools
from typing import Final

METHOD: Final = "version"

MAX_LOOKS: Final = 2
"""A request counts as passed over when so many looks in a row found it so.

Answers to requests that were made at the same moment come in any order, a few milliseconds apart;
between two looks there is far more time than that."""


class Sentinels:
    """The numbers of all requests of a connection, and the sentinels among them."""

    def __init__(self) -> None:
        self._last = 0
        self._missing: dict[int, int] = {}
        self._last_answered = 0

    @property
    def missing(self) -> bool:
        """Whether any sentinel has not been answered yet."""
        return bool(self._missing)

    def number(self) -> int:
        """Return the number of the next request."""
        self._last += 1
        return self._last

    def sentinel(self) -> bytes:
        """Return the sentinel of the request that got the last number, to be written after it."""
        number = self.number()
        self._missing[number] = 0
        return _line(number)

    def question(self) -> bytes:
        """Return a request whose answer shows that the other side answers again."""
        return _line(self.number())

    def answered(self, number: int) -> None:
        """Note an answer to any request; a number that no request had says nothing."""
        self._missing.pop(number, None)
        if number <= self._last:
            self._last_answered = max(self._last_answered, number)

    def passed_over(self) -> list[int]:
        """Look once, and return the numbers of the requests that turn out to be passed over."""
        found = []
        for number in itertools.takewhile(self._last_answered.__gt__, [*self._missing]):
            self._missing[number] += 1
            if self._missing[number] >= MAX_LOOKS:
                del self._missing[number]
                found.append(number - 1)
        return found


def _line(number: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":{}}\n' % (number, METHOD.encode())
