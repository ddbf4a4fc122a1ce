"""`calculate`: arithmetic and units, each evaluated in a sandbox."""
