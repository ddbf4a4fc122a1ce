"""What runs behind the walls of a chat's folder; see `sandbox.rooted` for what keeps it there."""
