"""Tools: typed definitions, who sees them, the pipeline of one call, the order of several.

What comes in: definitions, guards and restrictions from plugins, and a model's calls from the loop.
What goes out: schemas for the prompt, and one frozen result per call. This room never writes the
log, never talks to a model, and knows no tool of its own.
"""

from __future__ import annotations

from dsh.seams.display import visible, visible_bytes, visible_name, whole_head, whole_tail
from dsh.tools.arguments import ParsedArguments, parse_arguments
from dsh.tools.batch import BatchHost, BatchOutcome, run_batch
from dsh.tools.execution import CallInput, asked_about
from dsh.tools.guards import Guard
from dsh.tools.pipeline import Call, Finished
from dsh.tools.raw import raw_tool
from dsh.tools.runtime import TOOLS, ToolRuntime, tools_plugin
from dsh.tools.schema import param
from dsh.tools.tool import (
    ExecutionMode,
    Output,
    Subject,
    SubjectOf,
    Tool,
    define_tool,
    json_output,
    typed_output,
)

__all__ = [
    "TOOLS",
    "BatchHost",
    "BatchOutcome",
    "Call",
    "CallInput",
    "ExecutionMode",
    "Finished",
    "Guard",
    "Output",
    "ParsedArguments",
    "Subject",
    "SubjectOf",
    "Tool",
    "ToolRuntime",
    "asked_about",
    "define_tool",
    "json_output",
    "param",
    "parse_arguments",
    "raw_tool",
    "run_batch",
    "tools_plugin",
    "typed_output",
    "visible",
    "visible_bytes",
    "visible_name",
    "whole_head",
    "whole_tail",
]
