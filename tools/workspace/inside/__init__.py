"""Programs behind the walls of a chat's folder; `tools.sandbox.syscalls` keeps them there."""
