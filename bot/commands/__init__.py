"""Chat commands, one file each; none imports another."""
