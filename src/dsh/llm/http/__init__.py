"""Model servers over HTTP: what every adapter of one needs, whatever the wire.

What comes in: an address, a body, and a decoder of events. What goes out: chunk streams over kept
connections, with every break, refusal and unreadable answer classified. Nothing is sent anywhere
but to that address; nothing is retried; no environment is read but through its seam. Adapters enter
by `from dsh.llm import http`; importing it costs the HTTP library.
"""

from __future__ import annotations

from dsh.llm.http.adapter import Needs, ServerAdapter, ServerRoute, Target
from dsh.llm.http.bodies import effort_fields, in_band, json_text, malformed, unsendable
from dsh.llm.http.body import Body
from dsh.llm.http.connections import Connections, address, shown
from dsh.llm.http.framing import LINE_MAX, EventFramer
from dsh.llm.http.network import Pools, proxy_for
from dsh.llm.http.refusals import hide, redirect_host
from dsh.llm.http.stream import Attempt, Decoder, MakeDecoder, ReplyStream

__all__ = [
    "LINE_MAX",
    "Attempt",
    "Body",
    "Connections",
    "Decoder",
    "EventFramer",
    "MakeDecoder",
    "Needs",
    "Pools",
    "ReplyStream",
    "ServerAdapter",
    "ServerRoute",
    "Target",
    "address",
    "effort_fields",
    "hide",
    "in_band",
    "json_text",
    "malformed",
    "proxy_for",
    "redirect_host",
    "shown",
    "unsendable",
]
