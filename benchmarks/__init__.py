"""How fast and how big the bot is: one file per question, `python -m benchmarks` asks them all."""
