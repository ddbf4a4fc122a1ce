"""The program of a sandbox that does nothing, to see what it is confined by."""

from sandbox.child import serve

if __name__ == "__main__":
    serve(str)
