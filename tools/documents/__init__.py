"""Documents to text, parsed in a sandbox and never in the daemon."""
