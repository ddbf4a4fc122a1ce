"""`signal-tee-bot demo`: the whole bot on this machine; the terminal is the phone."""

import asyncio
from argparse import Namespace

from bot.demo.run import run_demo


def run(arguments: Namespace) -> int:
    """Run the demo; return the exit code."""
    return asyncio.run(run_demo(arguments.say or ()))
