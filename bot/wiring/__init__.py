"""From the settings to a running bot: every part made, joined and watched."""
