"""Signal: events, transports and text formatting."""
