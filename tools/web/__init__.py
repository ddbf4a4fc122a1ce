"""The way to the web: one guard, one client, and the tools that search and read."""
