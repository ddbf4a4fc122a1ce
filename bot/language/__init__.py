"""The languages of the bot's own sentences; the model answers in whichever it likes."""
