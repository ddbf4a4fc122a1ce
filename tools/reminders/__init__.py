"""Reminders and scheduled questions: what a person is told, or asks again, at a time."""
