"""`remember`, `recall` and `forget`: facts of a chat."""
