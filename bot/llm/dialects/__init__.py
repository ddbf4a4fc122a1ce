"""How models are asked: one package for each API that a model may speak."""
