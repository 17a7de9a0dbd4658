"""Cases of the typing matrix about listening and dispatching.

What comes in: an event. What goes out: its cases, right and wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .matrix_case import ARG, ATTR, CALL, Case, Writer, mark
from .matrix_classes import append_cases, constructor_cases, emit_cases, match_cases

if TYPE_CHECKING:
    from ..model import Event

__all__ = ["cases"]

RETURN = ("return-value", "reportReturnType")


def cases(writer: Writer, event: Event) -> list[Case]:
    """All cases of one event."""
    found = [*_listening(writer, event), *_shapes(writer, event)]
    if event.kind == "waterfall":
        found += _waterfall(writer, event)
    if event.kind in {"waterfall", "serial", "stream"}:
        found += _dispatch(writer, event)
    if event.kind in {"durable", "emit"}:
        found += _observe(writer, event)
    else:
        found.append(_not_observable(writer, event))
    found += constructor_cases(writer, event.payload_class, event.fields, writer.domain)
    for answer in event.answers:
        found += constructor_cases(writer, answer.name, answer.fields, writer.domain)
    if event.answers:
        found += match_cases(writer, event)
    found += append_cases(writer, event) if event.kind == "durable" else emit_cases(writer, event)
    return found


def _alien(writer: Writer, event: Event) -> str:
    """The payload class of another event of the same kind."""
    other = {
        "waterfall": ("ev.tools.PreExecute", "ev.agent.PreStep"),
        "serial": ("ev.agent.PreStep", "ev.agent.PreStep"),
        "stream": ("ev.agent.PreStep", "ev.agent.PreStep"),
        "durable": ("Logged[ev.turn.Start]", "Logged[ev.step.End]"),
        "emit": ("ev.tools.Change", "ev.llm.AdaptersUpdated"),
        "parallel": ("ev.tools.Change", "ev.tools.Change"),
    }[event.kind]
    return other[1] if other[0] == writer.event_parameter(event) else other[0]


def _definition(
    writer: Writer,
    event: Event,
    *,
    first: str | None = None,
    rest: str | None = None,
    returned: str | None = None,
    is_async: bool | None = None,
    body: str | None = None,
) -> list[str]:
    """A listener, indented, that differs from the right one only in what is given."""
    first = writer.event_parameter(event) if first is None else first
    rest = writer.next_parameter(event) if rest is None else rest
    returned = writer.returned(event) if returned is None else returned
    if event.kind == "serial" and returned == writer.returned(event):
        returned = writer.answer(event)
    word = "async def" if (writer.is_async(event) if is_async is None else is_async) else "def"
    parameters = f"event: {first}{rest}" if first else rest.removeprefix(", ")
    return [
        f"    {word} listener({parameters}) -> {returned}:",
        f"        {body or writer.body(event)}",
    ]


def _on(
    writer: Writer, event: Event, kind: str, listener: list[str], codes: tuple[str, str]
) -> Case:
    """A wrong listener, registered: the mark stands on the line of the call."""
    name = f"{kind.replace('-', '_')}_{writer.name(event)}"
    return Case(
        kind,
        [
            f"def {name}(ctx: Context) -> None:",
            *listener,
            "",
            mark(f"    ctx.on({writer.token(event)})(listener)", codes),
        ],
    )


def _listening(writer: Writer, event: Event) -> list[Case]:
    """What every event has: the right listener, and wrong names of the event."""
    name, token = writer.name(event), writer.token(event)
    return [
        Case(
            "listen",
            [
                f"def listen_{name}(ctx: Context) -> None:",
                f"    @ctx.on({token})",
                *_definition(writer, event),
                "",
                *(line.replace("listener(", "other(") for line in _definition(writer, event)),
                "",
                f"    ctx.on({token}, prepend=True)(other)",
            ],
        ),
        Case(
            "unknown-event",
            [f"def unknown_{name}(ctx: Context) -> None:", mark(f"    ctx.on({token}X)", ATTR)],
        ),
        Case(
            "event-as-text",
            [
                f"def text_{name}(ctx: Context) -> None:",
                mark(f'    ctx.on("{event.name}")', ARG),
            ],
        ),
        Case(
            "payload-for-token",
            [
                f"def class_{name}(ctx: Context) -> None:",
                mark(f"    ctx.on({writer.payload(event)})", ARG),
            ],
        ),
    ]


def _shapes(writer: Writer, event: Event) -> list[Case]:
    """Listeners of the wrong shape, and wrong uses of the payload inside a right one."""
    right = writer.is_async(event)
    subject = "event.data" if event.kind == "durable" else "event"
    found = [
        _on(
            writer,
            event,
            "wrong-payload",
            _definition(writer, event, first=_alien(writer, event)),
            ARG,
        ),
        _on(
            writer,
            event,
            "extra-parameter",
            _definition(writer, event, rest=f"{writer.next_parameter(event)}, more: int"),
            ARG,
        ),
        _on(
            writer,
            event,
            "no-parameter",
            _definition(writer, event, first="", rest="", body="raise NotImplementedError"),
            ARG,
        ),
        Case(
            "unknown-field",
            [
                f"def unknown_field_{writer.name(event)}(ctx: Context) -> None:",
                f"    @ctx.on({writer.token(event)})",
                _definition(writer, event)[0],
                mark(f"        print({subject}.unknown_field)", ATTR),
                _definition(writer, event)[1],
            ],
        ),
    ]
    if event.kind != "stream":
        kind = "sync-listener" if right else "async-listener"
        body = "raise NotImplementedError"
        found.append(
            _on(writer, event, kind, _definition(writer, event, is_async=not right, body=body), ARG)
        )
    if event.kind == "durable":
        payload = writer.payload(event)
        found.append(
            _on(writer, event, "not-logged", _definition(writer, event, first=payload), ARG)
        )
    if event.kind in {"durable", "emit", "parallel"}:
        wrong = _definition(writer, event, returned="int", body="return 1")
        found.append(_on(writer, event, "listener-answers", wrong, ARG))
    else:
        wrong = _definition(
            writer, event, returned="ev.records.SeqRange", body="raise NotImplementedError"
        )
        found.append(_on(writer, event, "wrong-answer", wrong, ARG))
    if event.kind not in {"waterfall", "stream"}:
        wrong = _definition(writer, event, rest=", call_next: Next[None]")
        found.append(_on(writer, event, "next-where-none-is", wrong, ARG))
    return found


def _inside(writer: Writer, event: Event, kind: str, lines: list[str]) -> Case:
    """A right listener by its head, with other lines inside."""
    return Case(
        kind,
        [
            f"def {kind.replace('-', '_')}_{writer.name(event)}(ctx: Context) -> None:",
            f"    @ctx.on({writer.token(event)})",
            _definition(writer, event)[0],
            *lines,
        ],
    )


def _waterfall(writer: Writer, event: Event) -> list[Case]:
    """Wrong uses of `call_next`, and an answer that is narrower than it must be."""
    name, token = writer.name(event), writer.token(event)
    never = "raise NotImplementedError"
    dropped = mark("        call_next()", ("unused-coroutine", "reportUnusedCoroutine"))
    alien_next = ", call_next: Next[ev.records.SeqRange]"
    no_next = _definition(writer, event, rest="", body=never)
    wrong_next = _definition(writer, event, rest=alien_next, body=never)
    wrong_return = mark("        return ev.records.SeqRange(start=0, end=0)", RETURN)
    with_argument = mark("        return await call_next(event)", CALL)
    narrow = f"{writer.domain}{event.answers[0].name}" if event.answers else writer.answer(event)
    found = [
        _on(writer, event, "missing-next", no_next, ARG),
        _on(writer, event, "wrong-next", wrong_next, ARG),
        _inside(writer, event, "next-not-awaited", [mark("        return call_next()", RETURN)]),
        _inside(writer, event, "next-dropped", [dropped, "        return await call_next()"]),
        _inside(writer, event, "next-with-argument", [with_argument]),
        _inside(writer, event, "wrong-return", [wrong_return]),
        Case(
            "narrower-answer",
            [
                f"def narrower_{name}(ctx: Context) -> None:",
                *_definition(writer, event, returned=narrow, body=never),
                "",
                f"    ctx.on({token})(listener)",
            ],
        ),
    ]
    if not event.none:
        found.append(_nothing_returned(writer, event))
    return found


def _nothing_returned(writer: Writer, event: Event) -> Case:
    """A listener that answers on one road only; the mark stands on its head."""
    return Case(
        "nothing-returned",
        [
            f"def nothing_returned_{writer.name(event)}(ctx: Context) -> None:",
            f"    @ctx.on({writer.token(event)})",
            mark(_definition(writer, event)[0], ("return", "reportReturnType")),
            "        if ctx.scope is None:",
            "            return await call_next()",
        ],
    )


def _dispatch(writer: Writer, event: Event) -> list[Case]:
    """Dispatching: with the right verb, payload and default, and without."""
    verb, token = event.kind, writer.token(event)
    other = "serial" if verb != "serial" else "waterfall"
    wrong_verb = Case(
        "wrong-verb",
        [
            f"def verb_{writer.name(event)}(ctx: Context) -> None:",
            mark(f"    ctx.{other}({token})", ARG),
        ],
    )
    if verb == "stream":
        return [wrong_verb, *_dispatch_stream(writer, event)]
    answer = writer.answer(event)
    default = f", default: Callable[[], Awaitable[{answer}]]" if verb == "waterfall" else ""
    returned = answer
    if verb == "serial":
        returned = f"tuple[{writer.domain}{event.answers[0].name}, ...]"
    rest = ", default" if verb == "waterfall" else ""
    alien = f"ev.records.SeqRange(start=0, end=0){rest}"
    dropped = ("unused-coroutine", "reportUnusedCoroutine")

    def case(kind: str, answered: str, line: str) -> Case:
        name = f"{kind.replace('-', '_')}_{writer.name(event)}"
        head = f"async def {name}(ctx: Context, payload: {writer.payload(event)}{default})"
        return Case(kind, [f"{head} -> {answered}:", line])

    call = f"ctx.{verb}({token})"
    return [
        wrong_verb,
        case("dispatch", returned, f"    return await {call}(payload{rest})"),
        case("dispatch-alien", "None", mark(f"    await {call}({alien})", ARG)),
        case("dispatch-dropped", "None", mark(f"    {call}(payload{rest})", dropped)),
    ]


def _dispatch_stream(writer: Writer, event: Event) -> list[Case]:
    """Dispatching a stream."""
    name, token, payload = writer.name(event), writer.token(event), writer.payload(event)
    parameters = f"ctx: Context, payload: {payload}, default: Callable[[], {writer.answer(event)}]"
    return [
        Case(
            "dispatch",
            [
                f"async def dispatch_{name}({parameters}) -> None:",
                f"    async with ctx.stream({token})(payload, default) as chunks:",
                "        async for chunk in chunks:",
                "            print(chunk)",
            ],
        ),
        Case(
            "dispatch-alien",
            [
                f"async def alien_{name}({parameters}) -> None:",
                mark(f"    ctx.stream({token})(default, default)", ARG),
            ],
        ),
    ]


def _observe(writer: Writer, event: Event) -> list[Case]:
    """Async work on a notice or log event."""
    name, token = writer.name(event), writer.token(event)
    return [
        Case(
            "observe",
            [
                f"def observe_{name}(ctx: Context) -> None:",
                f"    @ctx.observe({token}, queue=10)",
                *_definition(writer, event, is_async=True),
            ],
        ),
        Case(
            "observe-sync",
            [
                f"def observe_sync_{name}(ctx: Context) -> None:",
                *_definition(writer, event),
                "",
                mark(f"    ctx.observe({token})(listener)", ARG),
            ],
        ),
    ]


def _not_observable(writer: Writer, event: Event) -> Case:
    """Only notices and log events can be observed."""
    return Case(
        "not-observable",
        [
            f"def observe_{writer.name(event)}(ctx: Context) -> None:",
            mark(f"    ctx.observe({writer.token(event)})", ARG),
        ],
    )
