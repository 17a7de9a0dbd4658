"""How a call of an MCP server can fail, each way with a code of its own.

What comes in: what happened, in words. What goes out: errors that become the tool's failed result.
The codes are for programs, the words for the model and for people; neither ever holds a secret.
"""

from __future__ import annotations

from typing import ClassVar

from dsh.errors import ToolError

__all__ = [
    "Expired",
    "McpError",
    "NotRunning",
    "ProtocolBroken",
    "Refused",
    "ServerGone",
    "TooLarge",
    "TookTooLong",
    "ToolReported",
]


class McpError(ToolError):
    """An MCP server could not do what was asked of it."""

    default_code: ClassVar[str] = "MCP"


class NotRunning(McpError):
    """Nothing was sent: the server did not start, cannot be reached, or was given up."""

    default_code: ClassVar[str] = "MCP_NOT_RUNNING"


class ServerGone(McpError):
    """The server ended while it worked: what it had done by then is not known."""

    default_code: ClassVar[str] = "MCP_SERVER_GONE"


class TookTooLong(McpError):
    """No answer within the time; the server was told to stop."""

    default_code: ClassVar[str] = "MCP_TIMEOUT"


class TooLarge(McpError):
    """An answer beyond the bound; it was not read."""

    default_code: ClassVar[str] = "MCP_TOO_LARGE"


class ProtocolBroken(McpError):
    """An answer that is none of the protocol."""

    default_code: ClassVar[str] = "MCP_PROTOCOL"


class Refused(McpError):
    """The server answered with an error of the protocol, or HTTP refused."""

    default_code: ClassVar[str] = "MCP_REFUSED"


class Expired(Refused):
    """The server has forgotten the session; nothing was done, and a new session can be opened."""

    default_code: ClassVar[str] = "MCP_SESSION_EXPIRED"


class ToolReported(McpError):
    """The tool ran and says that it failed."""

    default_code: ClassVar[str] = "MCP_TOOL_ERROR"
