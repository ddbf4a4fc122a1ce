"""Half an hour of mixed traffic with faults: does the bot answer everything? Does it grow?"""
