"""One folder for each chat: its files, and the tools that work with them behind walls."""
