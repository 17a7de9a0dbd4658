"""The page: one HTML document that holds a trajectory, its styles and its scripts.

What comes in: a header, a trajectory, its bodies. What goes out: the document, complete, or the
JSON of what changed, for a page that follows. Everything of the log goes in as JSON in which no
`<` is left; the document's policy lets nothing run or load but the scripts it was made with.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, final

import orjson
from attrs import asdict

from dsh.catalog.codec import encode_record
from dsh.hooks import frozen
from dsh.view.bodies import Bodies, blocks_of
from dsh.view.redaction import Redaction
from dsh.view.tables import Row, plain
from dsh.view.telling import told
from dsh.view.totals import totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.catalog.records import SessionHeader
    from dsh.view.tables import Entity
    from dsh.view.trajectory import Trajectory
    from dsh.wire import StoredEvent

__all__ = ["Document", "Facts", "script", "style"]

#: In the order they are joined; each may use what those before it define.
SCRIPTS: Final = (
    "text", "data", "nodes", "timeline", "filter", "ledger", "head", "strip", "pointer", "markdown",
    "parts", "overview", "saw", "inspector", "links", "keys", "live", "main",
)  # fmt: skip
IMPORT: Final = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)
EXPORT: Final = re.compile(r"^export (?=const|let|function|class|async)", re.MULTILINE)
#: What could end a script element, or a line in older readers of JSON.
UNSAFE: Final = re.compile("[<>&\u2028\u2029]")


@frozen(kw_only=True, slots=True)
class Facts:
    """What a page says about its log as a whole.

    `header` is None when the first line is lost. `damage` says what could not be read and why,
    `torn` that the last line is unfinished. `noscript` are lines for a reader without scripts.
    """

    session: str
    header: SessionHeader | None
    damage: str | None = None
    torn: str | None = None
    noscript: Sequence[str] = ()


@final
class Document:
    """The page of one log, which may grow. `redact` masks what looks like a key."""

    def __init__(self, trajectory: Trajectory, *, full: bool, redact: bool) -> None:
        self.trajectory: Final = trajectory
        self.bodies: Final = Bodies(full=full)
        self._redaction: Final = Redaction() if redact else None

    @property
    def masked(self) -> int:
        """How many texts were masked in the newest document or change."""
        return 0 if self._redaction is None else self._redaction.count

    def see_all(self, events: Sequence[StoredEvent]) -> None:
        """Take in further events."""
        self.trajectory.see_all(events)
        self.bodies.add(events, self.trajectory.partials)

    def change(self, facts: Facts, *, revision: int, place: int) -> bytes:
        """As JSON, what changed since a revision, and the bodies from a place on."""
        self._count_anew()
        index = self._index(facts, revision)
        bodies = ",".join(f'"{key}":{text}' for key, text in self.bodies.since(place))
        text = f'{{"index":{index},"bodies":{{{bodies}}}}}'
        return self._masked_json(text).encode()

    def whole(self, facts: Facts, *, follow: bool = False) -> str:
        """The document. `follow`: it asks its server for what comes."""
        self._count_anew()
        keys: list[list[str]] = []
        blocks: list[str] = []
        for named, text in blocks_of(self.bodies.since(0)):
            keys.append(named)
            blocks.append(_element(f"block-{len(blocks)}", self._masked_json(text)))
        index = self._masked_json(self._index(facts, 0))
        data = [
            _element("index", index),
            _element("keys", orjson.dumps(keys).decode()),
            *blocks,
        ]
        code, styles = script(), style()
        parts = {
            "policy": _policy(code, styles, follow=follow),
            "title": html.escape(f"{facts.session} · dsh"),
            "style": styles,
            "noscript": html.escape(self._masked("\n".join(facts.noscript))),
            "mode": "follow" if follow else "file",
            "data": "\n".join(data),
            "script": code,
        }
        return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))

    def index(self, facts: Facts) -> bytes:
        """As JSON, everything but the bodies."""
        return self._masked_json(self._index(facts, 0)).encode()

    def _index(self, facts: Facts, revision: int) -> str:
        trajectory = self.trajectory
        index: dict[str, object] = {"revision": trajectory.tables.revision}
        for kind, changes in trajectory.tables.changed(revision).items():
            index[kind] = [(place, self._entity(entity)) for place, entity in changes]
        index["about"] = {
            "session": facts.session,
            "title": trajectory.title,
            "header": None if facts.header is None else encode_record(facts.header),
            "damage": facts.damage,
            "torn": facts.torn,
            "base": trajectory.base,
            "length": trajectory.length,
            "events": trajectory.events,
            "unknown": trajectory.unknown,
            "cut": self.bodies.cut,
            "redacted": self._redaction is not None,
            "place": len(self.bodies),
            "totals": asdict(totals(trajectory.tables, trajectory.length)),
        }
        return orjson.dumps(index).decode()

    def _entity(self, entity: Entity) -> dict[str, object]:
        made = plain(entity)
        if isinstance(entity, Row):
            words = told(entity, self.trajectory.words)
            made |= {"title": words.name, "about": words.about, "result": words.result}
        return made

    def _count_anew(self) -> None:
        if self._redaction is not None:
            self._redaction.count = 0

    def _masked(self, text: str) -> str:
        return text if self._redaction is None else self._redaction.masked(text)

    def _masked_json(self, text: str) -> str:
        return text if self._redaction is None else self._redaction.masked_json(text)


def _element(name: str, text: str) -> str:
    return f'<script type="application/json" id="data-{name}">{_inside_script(text)}</script>'


def _inside_script(text: str) -> str:
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _policy(code: str, styles: str, *, follow: bool) -> str:
    """Nothing may be loaded, sent or run but what stands here; following asks its own server."""
    rules = [
        "default-src 'none'",
        f"script-src 'sha256-{_digest(code)}'",
        f"style-src 'sha256-{_digest(styles)}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    if follow:
        rules.append("connect-src 'self'")
    return "; ".join(rules)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
    return (files("dsh.view") / "page" / name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """The page's scripts as one: each file without its imports and exports."""
    parts = [EXPORT.sub("", IMPORT.sub("", _asset(f"{name}.js"))) for name in SCRIPTS]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


@cache
def style() -> str:
    """The page's styles."""
    return _asset("page.css")
