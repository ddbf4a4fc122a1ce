"""Questions before side effects, and what people answer to them."""
