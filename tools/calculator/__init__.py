"""`calculate`: notation and bounds of our own, evaluated by asteval inside the sandbox."""
