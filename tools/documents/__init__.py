"""Documents to text: what the web sends is parsed in a sandbox's process, never in the daemon."""
