"""Cases of the typing matrix about making objects: payloads, answers, configuration.

What comes in: a class and its fields. What goes out: cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .matrix_case import ARG, ATTR, CALL, Case, Writer, is_checked, mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Event, Field

__all__ = ["append_cases", "constructor_cases", "emit_cases", "match_cases"]


def _function(name: str, parameters: Sequence[str], returned: str) -> str:
    return f"def {name}({', '.join(parameters)}) -> {returned}:"


def constructor_cases(
    writer: Writer, name: str, fields: Sequence[Field], prefix: str
) -> list[Case]:
    """Right, unknown, missing and wrong arguments, and a change of a frozen object."""
    full = f"{prefix}{name}"
    low = name.lower()
    right = writer.arguments(fields)
    arguments = ", ".join(f"{field.name}={field.name}" for field in fields)
    extra = f"{full}({arguments}{', ' if arguments else ''}unknown_field=1)"
    found = [
        Case("make", [_function(f"make_{low}", right, full), f"    return {full}({arguments})"]),
        Case(
            "make-unknown-field",
            [
                _function(f"make_unknown_{low}", right, full),
                mark(f"    return {extra}", CALL),
            ],
        ),
    ]
    for field in fields:
        others = [other for other in fields if other is not field]
        given = ", ".join(f"{other.name}={other.name}" for other in others)
        if field.required:
            found.append(
                Case(
                    "make-missing-field",
                    [
                        _function(
                            f"make_{low}_without_{field.name}", writer.arguments(others), full
                        ),
                        mark(f"    return {full}({given})", CALL),
                    ],
                )
            )
        if is_checked(field):
            wrong = f"{field.name}=wrong{', ' if given else ''}{given}"
            parameters = ["wrong: object", *writer.arguments(others)]
            found.append(
                Case(
                    "make-bad-field",
                    [
                        _function(f"make_{low}_bad_{field.name}", parameters, full),
                        mark(f"    return {full}({wrong})", ARG),
                    ],
                )
            )
    if fields:
        field = fields[0]
        value = f"value: {writer.speller.annotation(field)}"
        found.append(
            Case(
                "change-frozen",
                [
                    _function(f"change_{low}", [f"made: {full}", value], "None"),
                    mark(f"    made.{field.name} = value", ("misc", ATTR[1])),
                ],
            )
        )
    return found


def append_cases(writer: Writer, event: Event) -> list[Case]:
    """Who may append what to a session's log."""
    name, payload = writer.name(event), writer.payload(event)
    head = [f"session: live.Session, payload: {payload}"]
    if event.surface:
        sources = "sources=[0]"
        replace = "surface=ev.records.Replace(start_seq=1, end_seq=2)"
        return [
            Case(
                "append-replace",
                [
                    _function(f"replace_{name}", head, f"Logged[{payload}]"),
                    f"    return session.append(payload, {replace}, {sources})",
                ],
            ),
            Case(
                "append-core-only",
                [
                    _function(f"append_{name}", head, "None"),
                    mark("    session.append(payload)", ("call-overload", "reportArgumentType")),
                ],
            ),
            Case(
                "append-as-new-node",
                [
                    _function(f"add_{name}", head, "None"),
                    mark(
                        f"    session.append(payload, surface=ev.records.Append(), {sources})",
                        ("call-overload", "reportArgumentType"),
                    ),
                ],
            ),
        ]
    if event.emit == "core":
        return [
            Case(
                "append-core-only",
                [
                    _function(f"append_{name}", head, "None"),
                    mark("    session.append(payload)", ("call-overload", "reportArgumentType")),
                ],
            )
        ]
    return [
        Case(
            "append",
            [
                _function(f"append_{name}", head, f"Logged[{payload}]"),
                "    return session.append(payload)",
            ],
        ),
        Case(
            "append-class",
            [
                _function(f"append_class_{name}", ["session: live.Session"], "None"),
                mark(f"    session.append({payload})", ("call-overload", "reportArgumentType")),
            ],
        ),
    ]


def emit_cases(writer: Writer, event: Event) -> list[Case]:
    """Who may emit what."""
    name, payload = writer.name(event), writer.payload(event)
    head = [f"ctx: Context, payload: {payload}"]
    send = "    ctx.emit(payload)"
    return [
        Case(
            "emit" if event.emit == "any" and event.kind == "emit" else "emit-not-allowed",
            [
                _function(f"emit_{name}", head, "None"),
                send if event.emit == "any" and event.kind == "emit" else mark(send, ARG),
            ],
        ),
        Case(
            "emit-class",
            [
                _function(f"emit_class_{name}", ["ctx: Context"], "None"),
                mark(f"    ctx.emit({payload})", ARG),
            ],
        ),
    ]


def match_cases(writer: Writer, event: Event) -> list[Case]:
    """A match over a decision must name every answer."""
    name = writer.name(event)
    answers = [f"{writer.domain}{answer.name}()" for answer in event.answers]
    patterns = [*answers, *(["None"] if event.none else [])]
    if len(patterns) < 2:  # noqa: PLR2004
        return []

    def lines(label: str, kept: list[str], codes: tuple[str, str] | None) -> list[str]:
        subject = "    match decision:"
        body = [subject if codes is None else mark(subject, codes)]
        for number, pattern in enumerate(kept):
            body += [f"        case {pattern}:", f"            print({number})"]
        parameter = f"decision: {writer.answer(event)}"
        if event.none and event.kind == "serial":
            parameter = f"decision: {writer.answer(event)}"
        return [_function(f"{label}_{name}", [parameter], "None"), *body]

    return [
        Case("match", lines("match", patterns, None)),
        Case(
            "match-not-exhaustive",
            lines("match_less", patterns[1:], ("exhaustive-match", "-")),
        ),
    ]
