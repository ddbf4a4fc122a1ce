"""Tools that a model may call. Knows nothing of Signal or of the store."""
