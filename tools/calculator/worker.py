"""The program of the calculator's sandbox: `python -I -m tools.calculator.worker`."""

import sys

from sandbox.child import serve
from tools.calculator.arithmetic import calculate

_RECURSION_LIMIT = 10_000  # a sum of 500 terms is a tree 500 deep

if __name__ == "__main__":
    sys.setrecursionlimit(_RECURSION_LIMIT)
    serve(calculate)
