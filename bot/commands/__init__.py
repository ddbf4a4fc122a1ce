"""Chat commands, grouped in files that do not import each other."""
