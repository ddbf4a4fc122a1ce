"""The conversation with the model: prompt, tool loop, progress."""
