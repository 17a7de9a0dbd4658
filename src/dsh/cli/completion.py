"""`dsh completion SHELL`: a script that completes commands, options and session ids.

What comes in: the name of a shell. What goes out: its script on standard output, made from the
grammar itself, so that it cannot name what is not there. Session ids are asked of `dsh` when they
are completed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from dsh.cli.grammar.tree import tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dsh.cli.grammar.chat import CompletionOptions
    from dsh.cli.grammar.tree import Node

__all__ = ["completion", "script_for"]

#: Options with few values, and options whose value is a session.
VALUES: Final = {"--profile": "demo headless chat", "--color": "auto always never"}
SESSIONS: Final = ("--resume", "--session")
ZSH_BEGIN: Final = "#compdef dsh\nautoload -U +X bashcompinit && bashcompinit\n"
#: The file is the body of a function that is loaded by the first Tab, which wants an answer, too.
ZSH_END: Final = 'if [ "$funcstack[1]" = "_dsh" ]; then _bash_complete -F _dsh_words; fi\n'
#: Ids of this machine's sessions, newest first.
IDS: Final = "dsh sessions list --all --ids 2>/dev/null"


def completion(options: CompletionOptions) -> int:
    """Print the script. Returns the exit code."""
    sys.stdout.write(script_for(options.shell))
    return 0


def script_for(shell: str) -> str:
    """The completion script of a shell: bash, zsh or fish."""
    nodes = tree()
    match shell:
        case "fish":
            return _fish(nodes)
        case "zsh":
            return f"{ZSH_BEGIN}{_bash(nodes)}{ZSH_END}"
        case _:
            return _bash(nodes)


def _bash(nodes: Mapping[str, Node]) -> str:
    cases = "".join(
        f"    '{path}') words='{' '.join((*node.commands, *node.options))}' ;;\n"
        for path, node in nodes.items()
    )
    takers = "|".join(path for path, node in nodes.items() if node.takes_session)
    valued = "|".join(sorted({option for node in nodes.values() for option in node.files}))
    fixed = "".join(
        f"    {option}) COMPREPLY=($(compgen -W '{values}' -- \"$cur\")); return ;;\n"
        for option, values in VALUES.items()
    )
    return f"""\
# Completion of dsh. Made by: dsh completion bash
_dsh_words() {{
  local cur prev path words word i
  cur=${{COMP_WORDS[COMP_CWORD]}}
  prev=${{COMP_WORDS[COMP_CWORD-1]}}
  path=''
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${{COMP_WORDS[i]}}
    case "$word" in -*) break ;; esac
    case "${{path:+$path }}$word" in
      {"|".join(f"'{path}'" for path in nodes if path)}) path=${{path:+$path }}$word ;;
      *) break ;;
    esac
  done
  case "$prev" in
    {valued}) COMPREPLY=($(compgen -f -- "$cur")); return ;;
{fixed}    {"|".join(SESSIONS)}) COMPREPLY=($(compgen -W "last $({IDS})" -- "$cur")); return ;;
  esac
  words=''
  case "$path" in
{cases}  esac
  case "$cur" in
    -*) ;;
    *) case "$path" in {_quoted(takers)}) words="$words last $({IDS})" ;; esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -F _dsh_words dsh
"""


def _quoted(paths: str) -> str:
    return "|".join(f"'{path}'" for path in paths.split("|"))


def _fish(nodes: Mapping[str, Node]) -> str:
    lines = ["# Completion of dsh. Made by: dsh completion fish", "complete -c dsh -f"]
    for path, node in nodes.items():
        condition = _fish_condition(path.split(), node.commands)
        lines += [
            f"complete -c dsh -n '{condition}' -a '{name}' -d '{_escaped(summary)}'"
            for name, summary in node.summaries.items()
        ]
        for option in node.options:
            value = " -r -F" if option in node.files else ""
            if option in VALUES:
                value = f" -x -a '{VALUES[option]}'"
            elif option in SESSIONS:
                value = f" -x -a '(echo last; {_escaped(IDS)})'"
            lines.append(f"complete -c dsh -n '{condition}' -l '{option[2:]}'{value}")
        if node.takes_session:
            lines.append(f"complete -c dsh -n '{condition}' -a '(echo last; {_escaped(IDS)})'")
    return "\n".join(lines) + "\n"


def _fish_condition(path: Sequence[str], commands: Sequence[str]) -> str:
    if not path:
        return "__fish_use_subcommand"
    seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in path)
    if not commands:
        return seen
    return f"{seen}; and not __fish_seen_subcommand_from {' '.join(commands)}"


def _escaped(text: str) -> str:
    return text.replace("'", "\\'")
