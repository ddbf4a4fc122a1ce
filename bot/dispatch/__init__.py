"""From a received message to its one answer: access, intake, mailboxes, router, outbox, recovery."""
