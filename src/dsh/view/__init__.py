"""A log told to people: the trajectory, what each request was made of, and the page that shows it.

What comes in: stored events, in order. What goes out: plain tables, differences between requests,
and one HTML document. It reads no log, opens no connection and prints nothing.
"""

from __future__ import annotations

from dsh.view.document import Document, Facts
from dsh.view.saw import Change, Sent, compared, sent_at
from dsh.view.tables import Request, Row, RowKind, Span, State, Step, Tables, Turn
from dsh.view.telling import Told, count_in_words, counted, told
from dsh.view.totals import Totals, totals
from dsh.view.trajectory import Trajectory
from dsh.view.words import Outcome, Words

__all__ = [
    "Change",
    "Document",
    "Facts",
    "Outcome",
    "Request",
    "Row",
    "RowKind",
    "Sent",
    "Span",
    "State",
    "Step",
    "Tables",
    "Told",
    "Totals",
    "Trajectory",
    "Turn",
    "Words",
    "compared",
    "count_in_words",
    "counted",
    "sent_at",
    "told",
    "totals",
]
