"""From a received message to its one answer."""
