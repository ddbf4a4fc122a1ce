"""Client of any OpenAI-compatible endpoint."""
