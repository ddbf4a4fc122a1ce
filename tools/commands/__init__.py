"""Commands that run in a chat's workspace, behind walls."""
