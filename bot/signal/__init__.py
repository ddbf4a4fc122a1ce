"""Signal: events, transports and how text looks there."""
