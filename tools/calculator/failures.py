"""What cannot be calculated, in sentences."""

from sandbox.errors import WorkError

TOO_DEEP = "The calculation is nested too deep."


def sentence(error: BaseException) -> str:
    """Return what to say of an error that a calculation ended with."""
    match error:
        case WorkError():
            return str(error)
        case ZeroDivisionError():
            return "Division by zero has no result."
        case OverflowError():
            return "The result is too large."
        case _:
            return "The calculation has no result."
