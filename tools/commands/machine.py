"""What commands find on this machine: its programs, and the Python that the bot runs with."""

import sys
from pathlib import Path
from typing import Final

from sandbox.jail.program import Machine

_SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
"""Libraries for numbers would start a thread for each processor, and reserve memory for each."""

_NOTHING_OF_HOME: Final = {"PYTHONNOUSERSITE": "1"}
"""Where home is the workspace, one command could leave there what each later Python runs first."""


def this_machine() -> Machine:
    """Return what commands find here.

    Of the bot, that is its Python with the packages that are installed: not its files, settings or
    variables.
    """
    readable = dict.fromkeys(Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix))
    programs = Path(sys.executable).parent
    return Machine(
        readable=tuple(readable),
        path=f"{programs}:{_SYSTEM_PATH}",
        variables={**_ONE_THREAD, **_NOTHING_OF_HOME, "MPLBACKEND": "Agg"},
    )
