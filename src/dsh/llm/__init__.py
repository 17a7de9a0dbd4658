"""The model seam: adapters, prepared calls, chunk streams, failures, and the scripted model.

What comes in: adapters that plugins register, and frozen requests. What goes out: lawful chunk
streams and classified failures. Recovery (retry, compaction) is other plugins' work, on
`agent/request-error`; nothing here retries, and nothing here reads or writes a session.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dsh.llm.adapter import (
    DEFAULT_RETRY_POLICY,
    LlmAdapter,
    ModelInfo,
    ProviderInfo,
    ResolvedModel,
)
from dsh.llm.assemble import Assembler
from dsh.llm.call import LLM, LlmRuntime, PreparedCall, llm_plugin
from dsh.llm.failure import ErrorFacts, describe, error_facts, failure_of, raised
from dsh.llm.grammar import ChunkGrammar, grammar_fault
from dsh.llm.history import HistoryFolds, MessageFold
from dsh.llm.identity import WeakIdentityMap
from dsh.llm.mapping import map_chunks
from dsh.llm.retry_after import retry_after_ms
from dsh.llm.routes import Registration
from dsh.llm.wording import classify

if TYPE_CHECKING:
    from dsh.llm import http
    from dsh.llm.script import Script, ScriptedCall, ScriptEntry, parse_script, read_script
    from dsh.llm.scripted import ScriptedModel, chunks_of

__all__ = [
    "DEFAULT_RETRY_POLICY",
    "LLM",
    "Assembler",
    "ChunkGrammar",
    "ErrorFacts",
    "HistoryFolds",
    "LlmAdapter",
    "LlmRuntime",
    "MessageFold",
    "ModelInfo",
    "PreparedCall",
    "ProviderInfo",
    "Registration",
    "ResolvedModel",
    "Script",
    "ScriptEntry",
    "ScriptedCall",
    "ScriptedModel",
    "WeakIdentityMap",
    "chunks_of",
    "classify",
    "describe",
    "error_facts",
    "failure_of",
    "grammar_fault",
    "http",
    "llm_plugin",
    "map_chunks",
    "parse_script",
    "raised",
    "read_script",
    "retry_after_ms",
]

if not TYPE_CHECKING:
    # Only what plays a script pays for the player. Hidden from type checkers, which would
    # otherwise take any misspelt name of this module for one of these.
    _SCRIPTED = frozenset(
        {
            "Script",
            "ScriptEntry",
            "ScriptedCall",
            "ScriptedModel",
            "chunks_of",
            "parse_script",
            "read_script",
        }
    )

    def __getattr__(name: str) -> object:
        if name == "http":
            # Likewise: only adapters of servers pay for the HTTP library.
            return import_module("dsh.llm.http")
        if name not in _SCRIPTED:
            raise AttributeError(f"module 'dsh.llm' has no attribute {name!r}")
        value: object = getattr(import_module("dsh.llm.scripted"), name)
        globals()[name] = value
        return value
