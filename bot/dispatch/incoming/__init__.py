"""What comes in: who may talk, what is stored, changes of earlier messages, a start's backlog."""
