"""Images as a model is shown them: what people send is decoded in a sandbox's process alone."""
