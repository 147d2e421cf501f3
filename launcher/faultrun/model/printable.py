"""What a worker or a file says, made fit for a terminal, a page or a log.

Exception messages, log lines and file names are words of strangers. With an escape they could set the title,
clear the screen or fill the clipboard; with a mark of direction they could be read as something else.
"""

import re

_UNFIT = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069"
_CONTROL = re.compile(f"[{_UNFIT}]")
_MAY_BE_UNFIT = re.compile(rb"[^\t\n\x20-\x7e]")
_OF_A_CONSOLE = re.compile(f"(\\x1b\\[[0-9;:]*m|\\r)|[{_UNFIT}\\udc80-\\udc9f]")


def printable(text: str) -> str:
    """``text`` with C0 and C1 controls and marks of direction as JSON writes them; newlines and tabs stay."""
    return _CONTROL.sub(_visible, text)


def one_line(text: str) -> str:
    """Make a name or a reason printable within a line of ours: it cannot begin another line."""
    return printable(text).replace("\n", "\\u000a")


def console_output(data: bytes) -> bytes:
    """Make a worker's output fit for the console, where colours (SGR) and carriage returns stay.

    Bytes that are no UTF-8 stay too, unless they are C1 controls.
    """
    if not _MAY_BE_UNFIT.search(data):
        return data
    text = data.decode(errors="surrogateescape")
    return _OF_A_CONSOLE.sub(lambda found: found[1] or _visible(found), text).encode(errors="surrogateescape")


def last_written(line: bytes) -> bytes:
    """What a terminal shows of a line in which carriage returns begin it anew, as bars of progress do."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _visible(found: "re.Match[str]") -> str:
    """In JSON, where DEL may stand as it is, this means the same."""
    return f"\\u{ord(found[0]):04x}"
