"""Why a server cannot be used, as sentences for the operator.

McpError                what this package finds wrong by itself; its text is such a sentence
├── CommandNotFound     the program of its command is not there
├── Unreachable         nobody listens at its socket
├── ServerEnded         the server closed the connection
├── MessageTooLong      it sent more at once than is taken in
├── TooManyRequests     it asks more than it reads answers
├── CredentialsRefused  its HTTP side answered 401 or 403
└── RedirectRefused     its HTTP side sent us elsewhere
"""

import httpx2
from mcp import MCPError, types


class McpError(Exception):
    """Something about a server that ends the connection to it."""


class CommandNotFound(McpError):
    """The program of the server's command is not there."""


class Unreachable(McpError):
    """Nobody listens at the server's socket."""


class ServerEnded(McpError):
    """The server closed the connection."""


class MessageTooLong(McpError):
    """The server sent more at once than is taken in."""


class TooManyRequests(McpError):
    """The server asks and does not read the answers."""


class CredentialsRefused(McpError):
    """The HTTP side of the server does not accept what was sent as credentials."""


class RedirectRefused(McpError):
    """The HTTP side of the server redirects; nobody has allowed where to."""


def first_cause(error: BaseException) -> BaseException:
    """Return the first error of a group that is no group; the others are its consequences."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def reason(error: BaseException, *, timeout_seconds: float) -> str:
    """Say in a sentence why a server cannot be used, without quoting anything it said.

    Args:
        error: what ended the connection, no group.
        timeout_seconds: how long the server had to connect or to answer.
    """
    match error:
        case McpError():
            sentence = str(error)
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            sentence = "The MCP server could not be reached."
        case TimeoutError() | MCPError(code=types.REQUEST_TIMEOUT):
            sentence = f"The MCP server did not answer within {timeout_seconds:g} seconds."
        case OSError():
            sentence = "The MCP server's command could not be started."
        case MCPError(code=types.CONNECTION_CLOSED):
            sentence = "The MCP server ended the connection."
        case MCPError(code=types.METHOD_NOT_FOUND):
            sentence = "What answers does not speak MCP. Is its address, or its command, right?"
        case MCPError():
            sentence = f"The MCP server refused the connection (code {error.code})."
        case _:
            sentence = f"The connection to the MCP server was lost ({type(error).__name__})."
    return sentence
