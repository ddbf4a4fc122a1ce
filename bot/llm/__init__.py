"""Client of model endpoints: OpenAI-compatible ones, Anthropic, Bedrock, Gemini and Ollama."""
