"""The program of the sandbox for units and dates: `python -I -m tools.calculator.measures_worker`.

A process of its own, because the table of units costs more to load than arithmetic may wait.
"""

import sys
from datetime import UTC, datetime

from sandbox.child import serve
from tools.calculator.dates import calculate_dates
from tools.calculator.measuring import calculate_measures
from tools.calculator.reading import Reading, reading
from tools.calculator.units import UnitTable

_RECURSION_LIMIT = 10_000  # as for arithmetic

if __name__ == "__main__":
    sys.setrecursionlimit(_RECURSION_LIMIT)
    table = UnitTable()
    calculate_measures("1 km/h in mph", table)  # what pint loads late is loaded before the limits

    def answer(text: str) -> str:
        """Calculate with units or dates."""
        if reading(text) is Reading.DATES:
            return calculate_dates(text, datetime.now(UTC))
        return calculate_measures(text, table)

    serve(answer)
