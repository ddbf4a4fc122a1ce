"""This process and the operating system: signals, descriptors, its parent, who may look into it."""
