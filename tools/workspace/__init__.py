"""A folder for each chat, and the tools that work with its files behind walls."""
