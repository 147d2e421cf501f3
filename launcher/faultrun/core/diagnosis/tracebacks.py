"""What a Python traceback in a log says: the exception, and the innermost frame of the user's own code.

Format: https://docs.python.org/3/library/traceback.html. torch puts
``[rank3]:`` before each line, rich draws a box around the frames, and groups of
exceptions stand behind a rule. Which line to show is decided here, too.
"""

import re
from collections.abc import Sequence

from faultrun.model.observed.evidence import Raised

_PREFIX = re.compile(r"^\[rank\d+\]:\s?")
_HEAD = "Traceback (most recent call last):"
_LINKS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_EXCEPTION = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?$")
_BOX = re.compile(
    r"^(?P<before>.*?)(?:\u256d|\u250c|\+)[\u2500-]+ Traceback \(most recent call last\) [\u2500-]+\S\s*$"
)
_SIDE = re.compile(r"^[\u2502|] ?(?P<text>.*?)\s*[\u2502|]$")
_BOXED_FRAME = re.compile(r"^(?P<file>\S.*?):(?P<line>\d+) in (?P<function>\S+)$")
"""rich/traceback.py; a path that is too long goes on in the next line."""
_GROUP = re.compile(r"^\s*\+ Exception Group (?P<head>Traceback .*)$")
_RULED = re.compile(r"^\s+(?:\| ?|\+-)")
_LIBRARY = re.compile(r"site-packages/|dist-packages/|/lib/python3|/faultrun/(?:sdk|standby)/|<frozen |^<")
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_CHATTER = re.compile(
    r"^(\[rank\d+\]:)?\s*("
    r"\[(DEBUG|INFO|WARNING)\] [A-Z_]+\(\d+[,:]"  # MindSpore: mindspore/core/utils/log_adapter.cc
    r"|\[?[VIW]\d{4} \d\d:\d\d:\d\d\.\d+ "  # glog, and c10/util/Logging.cpp of torch
    r"|faultrun: this rank's shard is copied )"  # our sdk/snapshots/interval.py
)
_RULE = re.compile(r"^-{10,}$")
_TITLE = re.compile(r"^- .*:(?: \(.*\))?$")
_REFERS = re.compile(r"Refer to '(?P<title>[^']+)'")
_MESSAGE_CHARS = 500
_HEADED_LINES = 16
_CHAIN = 8


def last_raised(lines: Sequence[str]) -> Raised | None:
    """The last exception of ``lines``; None when they hold no traceback that ends.

    A traceback is the frames and the first line behind them that is not
    indented. A SyntaxError has frames and no head.
    """
    found: Raised | None = None
    frames: list[re.Match[str]] = []
    inside = linked = False
    lines = _plain(lines)
    for at, line in enumerate(lines):
        if line in _LINKS:
            linked = True
            continue
        if line == _HEAD:
            inside, frames = True, []
            continue
        if (frame := _FRAME.match(line)) is not None:
            inside = True
            frames.append(frame)
            continue
        if not inside or not line or line[0].isspace():
            continue
        inside = False
        if (ended := _EXCEPTION.match(line)) is not None and frames:
            before: tuple[str, ...] = ()
            if linked and found is not None:
                before = (f"{found.kind}: {found.message}", *found.came_from)
            linked = False
            message = _message(ended["message"] or "", lines[at + 1 : at + 1 + _HEADED_LINES])
            kind = ended["kind"].rpartition(".")[2]
            found = Raised(kind=kind, message=message, frame=_own(frames), came_from=before[:_CHAIN])
        frames = []
    return found


def _plain(lines: Sequence[str]) -> list[str]:
    """The lines as Python itself writes them: without prefixes, boxes and rules."""
    plain: list[str] = []
    indent, boxed, grouped, path = 0, False, False, ""
    for raw in lines:
        line = _PREFIX.sub("", raw.rstrip())
        box, group = _BOX.match(line), _GROUP.match(line)
        if box is not None or group is not None:
            boxed, grouped, path = box is not None, box is None, ""
            indent = 0 if box is None else len(box["before"])
            plain.append(_HEAD)
        elif boxed:
            side = _SIDE.match(line[indent:])
            boxed = side is not None
            text = "" if side is None else side["text"]
            tries = map(_BOXED_FRAME.match, (path + text, f"{path} {text}"))
            if (frame := next((one for one in tries if one is not None), None)) is not None:
                plain.append(f'  File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}')
            path = path + text if frame is None and text[:1].strip() else ""
        elif grouped and _RULED.match(line):
            plain.append(_RULED.sub("", line))
        else:
            grouped = False
            plain.append(line[indent:] if not line[:indent].strip() else line)
            indent = indent if not line.strip() or line in _LINKS else 0
    return plain


def gist(message: str) -> str:
    """The first line of an exception's words that says something; at most 500 characters.

    MindSpore puts its words between rules of dashes, under titles such as
    ``- Kernel error:`` (mindspore/core/utils/log_adapter.cc). A first line that
    only refers to such a title gives way to what stands below it.
    """
    first = _first_words(message)
    if (referred := _REFERS.search(first)) is None:
        return first
    below = message.partition(f"- {referred['title']}")[2].partition("\n")[2]
    return _first_words(below.partition("\n- ")[0]).removeprefix("[ERROR] ") or first


def _first_words(message: str) -> str:
    ruled = False
    for line in map(str.strip, message.splitlines()):
        title = ruled and _TITLE.match(line)
        ruled = bool(_RULE.match(line))
        if line and not ruled and not title:
            return line[:_MESSAGE_CHARS]
    return ""


def is_chatter(line: str) -> bool:
    """Whether a library says this with less than the level of an error."""
    return _CHATTER.match(line) is not None


def telling_line(lines: Sequence[str], raised: Raised | None) -> str:
    """The one of ``lines`` to show to a person; empty when there are none.

    The exception's own words. Without one the last line that is not a library's chatter: a rank that has
    raised or is killed still has threads that log that they are well. Only chatter is better than nothing.
    """
    if raised is not None:
        own = f"{raised.kind}: {raised.message}" if raised.message else raised.kind
        found = next((line for line in reversed(lines) if own in line), None)
        if found is None and raised.message:
            found = next((line for line in reversed(lines) if raised.message in line), None)
        if found is not None:
            return _PREFIX.sub("", found.strip())
    said = next((line for line in reversed(lines) if not is_chatter(line)), None)
    return (said or (lines[-1] if lines else "")).strip()


def _message(said: str, below: Sequence[str]) -> str:
    """The exception's own line, unless the words stand below it."""
    if _REFERS.search(said):
        return gist("\n".join((said, *below)))
    return said[:_MESSAGE_CHARS] or _headed(below)


def _headed(lines: Sequence[str]) -> str:
    """The words of an exception whose own line has none: they stand below, under a title."""
    bare = [_PREFIX.sub("", line.rstrip()) for line in lines]
    words = next((at for at, line in enumerate(bare) if line), len(bare))
    return gist("\n".join(bare[words:])) if bare[words:] and _RULE.match(bare[words]) else ""


def without_numbers(message: str) -> str:
    """``message`` with every number as ``#``: addresses, sizes and steps differ between equal failures."""
    return _NUMBER.sub("#", message)


def _own(frames: Sequence[re.Match[str]]) -> str:
    """The innermost frame outside libraries, or the innermost of all."""
    own = [frame for frame in frames if not _LIBRARY.search(frame["file"])]
    frame = (own or frames)[-1]
    name = frame["file"].rpartition("/")[2]
    function = f" in {frame['function']}" if frame["function"] else ""
    return f"{name}:{frame['line']}{function}"
