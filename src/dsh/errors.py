"""The error tree of dsh: every error that a person or a plugin author can meet.

What comes in: facts about what was asked, the value, what was expected and what to do.
What goes out: exceptions whose text is one paragraph without a traceback.
This module imports nothing, catches nothing and never prints.

HarnessError
├── UsageError                  the command line or composition is wrong (exit code 2)
│   ├── ConfigError             rows or settings are wrong; `issues` has every one of them
│   ├── MissingCredential       a provider has no key, or one that no header can carry
│   └── PluginNotFound          no such plugin, or its extra is not installed
├── PluginError                 a plugin did something the kernel refuses; names its place
│   ├── BadListener             wrong arity, or async where sync is due; or a registrar never used
│   ├── BadAnswer               a listener answered something its event does not allow
│   ├── WaterfallMisuse         call_next called twice, late, or concurrently
│   ├── InactiveEffect          registration on a plugin that is gone or going
│   ├── ServiceConflict         the service is already provided by another plugin
│   └── ServiceMissing          the service was not declared, or nobody provides it
├── SessionError
│   ├── SessionNotFound
│   ├── SessionExists
│   ├── SessionBusy             open for writing elsewhere; names pid, host and start
│   ├── SessionCorrupt          damage in the middle of a log; names path, line and reason
│   ├── SessionUnreadable       a newer format, or an event this installation does not know
│   ├── SessionClosed           an append after the session's write path was closed
│   ├── InvalidAppend           an append that breaks a rule of the log, or cannot be read back
│   ├── ReentrantAppend         an append from inside a listener of the same session's append
│   └── StorageFailed           the disk refused; raised at the next barrier
├── AgentError
│   ├── AgentClosed             the agent, or the factory that made it, no longer accepts work
│   ├── AgentBusy               maintenance was asked of an agent that is not idle
│   └── InboxConflict           a message id that is already pending
├── PromptError                 the prompt cannot be put together; names section and reference
├── LlmError                    one failed model call, with the facts the provider gave
├── ToolError                   a tool says why it failed; `code` reaches the model's result
└── InvariantError              the harness broke one of its own laws; please report it
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AgentBusy",
    "AgentClosed",
    "AgentError",
    "BadAnswer",
    "BadListener",
    "ConfigError",
    "HarnessError",
    "InactiveEffect",
    "InboxConflict",
    "InvalidAppend",
    "InvariantError",
    "LlmError",
    "MissingCredential",
    "PluginError",
    "PluginNotFound",
    "PromptError",
    "ReentrantAppend",
    "ServiceConflict",
    "ServiceMissing",
    "SessionBusy",
    "SessionClosed",
    "SessionCorrupt",
    "SessionError",
    "SessionExists",
    "SessionNotFound",
    "SessionUnreadable",
    "StorageFailed",
    "ToolError",
    "UsageError",
    "WaterfallMisuse",
]


class HarnessError(Exception):
    """Anything dsh refuses or reports. `code` is stable; the text is for people."""

    default_code: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code if code is not None else self.default_code


class UsageError(HarnessError):
    """The command line or composition asks for something impossible. The text says the remedy."""

    default_code = "USAGE"


class ConfigError(UsageError):
    """Rows or settings are wrong. `issues` has one line for each, with file, line and column."""

    default_code = "CONFIG"

    def __init__(self, message: str, *, issues: tuple[str, ...] = ()) -> None:
        super().__init__("\n".join((message, *issues)) if issues else message)
        self.issues = issues


class MissingCredential(UsageError):
    """A provider has no key, or one that no header can carry. Remedy: set the variable named."""

    default_code = "MISSING_CREDENTIAL"


class PluginNotFound(UsageError):
    """No installed plugin has that name, or its extra is missing. Remedy: the command named."""

    default_code = "PLUGIN_NOT_FOUND"


class PluginError(HarnessError):
    """A plugin did something the kernel refuses. Remedy: change it at the place named."""

    default_code = "PLUGIN"


class BadListener(PluginError):
    """A listener has the wrong shape. Remedy: the signature in the text."""

    default_code = "BAD_LISTENER"


class BadAnswer(PluginError):
    """A listener's answer is of no type its event allows. Remedy: return one of the types named."""

    default_code = "BAD_ANSWER"


class WaterfallMisuse(PluginError):
    """`call_next` was called twice, after its listener returned, or concurrently."""

    default_code = "WATERFALL_MISUSE"


class InactiveEffect(PluginError):
    """A registration on a plugin that is gone or going. Remedy: register in `apply` only."""

    default_code = "INACTIVE_EFFECT"


class ServiceConflict(PluginError):
    """Another plugin provides this service already. Remedy: disable one of the two rows."""

    default_code = "SERVICE_CONFLICT"


class ServiceMissing(PluginError):
    """The service was not declared in `deps`, or nobody provides it now."""

    default_code = "SERVICE_MISSING"


class SessionError(HarnessError):
    """Something about a session's identity, log or storage."""

    default_code = "SESSION"


class SessionNotFound(SessionError):
    """No stored or live session has this id. Remedy: `dsh sessions list`."""

    default_code = "SESSION_NOT_FOUND"


class SessionExists(SessionError):
    """A session with this id is already live or stored. Remedy: resume it, or choose another id."""

    default_code = "SESSION_ALREADY_EXISTS"


class SessionBusy(SessionError):
    """Open for writing elsewhere. Remedy: close the process named; reading still works."""

    default_code = "SESSION_BUSY"


class SessionCorrupt(SessionError):
    """A log is damaged before its end. Remedy: `dsh sessions verify`, then a copy or a backup."""

    default_code = "SESSION_CORRUPT"


class SessionUnreadable(SessionError):
    """A newer format, or an event this installation does not know. Remedy: install it."""

    default_code = "SESSION_UNREADABLE"


class SessionClosed(SessionError):
    """The write path is closed. Remedy: log in `ctx.on_drain`, the last place that may."""

    default_code = "SESSION_CLOSED"


class InvalidAppend(SessionError):
    """The event breaks a rule of the log or could not be read back. Nothing was appended."""

    default_code = "INVALID_APPEND"


class ReentrantAppend(SessionError):
    """An append from inside a listener of this session. Remedy: `steer`, `followup` or `inject`."""

    default_code = "REENTRANT_APPEND"


class StorageFailed(SessionError):
    """The disk refused. What was acknowledged before is safe. Remedy: free space, check rights."""

    default_code = "STORAGE_FAILED"


class AgentError(HarnessError):
    """Something about a live agent."""

    default_code = "AGENT"


class AgentClosed(AgentError):
    """The agent, or the loop that owns it, no longer accepts work. Remedy: resume the session."""

    default_code = "AGENT_CLOSED"


class AgentBusy(AgentError):
    """The agent is not idle. Remedy: `await agent.when_idle()` first."""

    default_code = "AGENT_BUSY"


class InboxConflict(AgentError):
    """A pending message already has this id. Remedy: give the message an id of its own."""

    default_code = "INBOX_CONFLICT"


class PromptError(HarnessError):
    """The prompt cannot be put together. Remedy: change the section or variable it names."""

    default_code = "PROMPT"


class LlmError(HarnessError):
    """One failed model call. `status`, `retry_after_ms` and `request_id` are the provider's own."""

    default_code = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        retry_after_ms: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.retry_after_ms = retry_after_ms
        self.request_id = request_id


class ToolError(HarnessError):
    """A tool says why it failed; the text becomes the model's error result."""

    default_code = "TOOL_FAILED"


class InvariantError(HarnessError):
    """The harness broke one of its own laws. Remedy: report it with the session's log."""

    default_code = "INVARIANT"
