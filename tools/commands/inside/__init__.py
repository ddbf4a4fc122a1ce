"""What is said of a command before it runs, worked out behind walls."""
