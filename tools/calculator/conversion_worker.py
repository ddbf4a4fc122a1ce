"""The program of the sandbox for units: `python -I -m tools.calculator.conversion_worker`.

A process of its own, because the table of units costs more to load than arithmetic may wait.
"""

import json

from sandbox.child import serve
from tools.calculator.conversion import UnitConverter

if __name__ == "__main__":
    converter = UnitConverter()
    # What pint loads late is loaded before the limits hold.
    converter.answer(json.dumps({"value": "1", "from": "km/h", "to": "mph"}))
    serve(converter.answer)
