"""`signal-tee-bot demo`: the whole bot on this machine; the terminal is the phone."""

import asyncio
from argparse import Namespace

from bot.demo.run import run_demo


def run(arguments: Namespace) -> bool:
    """Run the demo, and return whether it worked."""
    return asyncio.run(run_demo(arguments.say or ())) == 0
