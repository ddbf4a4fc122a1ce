"""The settings: a module for each section, and how they are read."""
