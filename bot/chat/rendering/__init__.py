"""An answer as messages: short ones are rendered at once, the others in a sandbox's process."""
