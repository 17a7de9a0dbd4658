"""Faults: an exception in one line, with the place where foreign code raised it, and a hint.

What comes in: what a plugin raised. What goes out: `file:line: Class: message`, and the nearest
name if a name was wrong. Errors of dsh itself say all that by themselves and are left as they are.
"""

from __future__ import annotations

import re
import sys
import traceback
from pathlib import Path
from typing import Final, cast

import trio

from dsh.errors import HarnessError
from dsh.kernel.places import did_you_mean

__all__ = ["advised", "in_a_line", "is_foreign"]

#: Folders whose frames say nothing to the author of a plugin.
MACHINERY: Final = (f"{Path(__file__).parents[1]}/", f"{Path(trio.__file__).parent}/", "<")
CANNOT_IMPORT: Final = re.compile(r"cannot import name '(\w+)'")


def in_a_line(error: BaseException) -> str:
    """What went wrong and where. Several errors in a group are named one after the other."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return "; ".join(in_a_line(one) for one in group.exceptions)
    if isinstance(error, HarnessError):
        return str(error)
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    where = ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_foreign(f.filename)]
    if frames:
        where = f"{frames[-1].filename}:{frames[-1].lineno}: "
    return f"{where}{type(error).__name__}: {_text(error)}{_hint(error)}"


def _text(error: BaseException) -> str:
    """Its own text. A `__str__` that raises must not turn a contained failure into another one."""
    try:
        return str(error)
    except Exception:  # whatever a plugin's class does  # noqa: BLE001
        return "(its text could not be read)"


def advised(text: str, advice: str) -> str:
    """Fault and advice in one sentence, or in two when the fault ends with a question."""
    return f"{text} {advice[0].upper()}{advice[1:]}" if text.endswith("?") else f"{text}; {advice}"


def is_foreign(filename: str) -> bool:
    """Whether a frame of this file is neither of dsh's rooms, nor of trio, nor of the import."""
    return not filename.startswith(MACHINERY) and "/importlib/" not in filename


def _hint(error: BaseException) -> str:
    """The nearest name, where a name of a module or an object was wrong."""
    if isinstance(error, AttributeError) and error.name is not None and error.obj is not None:
        return did_you_mean(error.name, dir(error.obj))
    if isinstance(error, ImportError) and error.name in sys.modules:
        wrong = CANNOT_IMPORT.match(str(error))
        if wrong is not None:
            return did_you_mean(wrong[1], dir(sys.modules[error.name]))
    return ""
