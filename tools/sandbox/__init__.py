"""Code that may hang or swell runs here: in processes of its own that can be killed."""
