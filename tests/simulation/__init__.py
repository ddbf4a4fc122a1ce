"""The whole bot in a deterministic simulator: `python -m tests.simulation`."""

from tests.simulation import clocks  # before any module of the project

__all__ = ["clocks"]
