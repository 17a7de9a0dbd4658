"""`python -m dsh.testing.model_server`: the fault server for a person's terminal.

What comes in: a port and, if wanted, a script and faults. What goes out: a server on 127.0.0.1
until Ctrl-C; its address on stderr. Without a script it answers every request with one sentence.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from dsh.llm import ScriptEntry, parse_script
from dsh.testing.model_server.replies import at_random, by_bytes
from dsh.testing.model_server.server import open_model_server

if TYPE_CHECKING:
    from dsh.testing.model_server.server import Answer, Answers, RecordedRequest


def _echo(request: RecordedRequest) -> Answer:
    body = request.json
    messages = body.get("messages") if isinstance(body, Mapping) else None
    count = len(messages) if isinstance(messages, list) else 0
    return ScriptEntry(text=f"This is a test server, not a model. You sent {count} messages.")


async def _main(options: argparse.Namespace) -> None:
    script: str | None = options.script
    answers: Answers = _echo
    if script is not None:
        answers = parse_script(await trio.Path(script).read_text(), Path(script).name).entries
    cut = None
    if options.pieces != "whole":
        cut = by_bytes if options.pieces == "bytes" else at_random(options.seed)
    async with open_model_server(
        answers,
        strict=options.strict,
        token_limit=options.token_limit,
        cut=cut,
        port=options.port,
    ) as server:
        sys.stderr.write(f"model server: {server.base_url} (Ctrl-C ends it)\n")
        await trio.sleep_forever()


def main() -> None:
    """The command line of `python -m dsh.testing.model_server`."""
    parser = argparse.ArgumentParser(prog="python -m dsh.testing.model_server")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--script", help="YAML script, one entry for each request")
    parser.add_argument("--strict", action="store_true", help="refuse what strict servers refuse")
    parser.add_argument("--token-limit", type=int, help="refuse longer requests")
    parser.add_argument("--pieces", choices=("whole", "bytes", "random"), default="whole")
    parser.add_argument("--seed", type=int, default=0, help="for --pieces random")
    try:
        trio.run(_main, parser.parse_args())
    except KeyboardInterrupt:
        sys.stderr.write("model server: stopped\n")


if __name__ == "__main__":
    main()
