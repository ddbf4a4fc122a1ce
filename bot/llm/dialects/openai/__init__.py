"""Chat completions, as OpenAI and most servers speak them."""
