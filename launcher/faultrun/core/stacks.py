"""Stack dumps as text -> the frames of the main thread, innermost first.

Two formats are read: faulthandler's (CPython's Python/traceback.c,
``_Py_DumpTraceback``, "Stack": the one thread that was asked; older workers
say all, newest first and the main thread last), and that of ``py-spy dump``,
which names it.
"""

import re
from dataclasses import dataclass

_FAULTHANDLER = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
_PY_SPY = re.compile(r"^    (?P<function>.+) \((?P<file>.+?)(?::(?P<line>\d+))?\)$")
_THREAD = re.compile(r"^(?:(?:Current )?[Tt]hread |Stack )")
_MAIN = '"MainThread"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One call; ``line`` is 0 when the dump does not say."""

    file: str
    line: int
    function: str

    @property
    def shown(self) -> str:
        """``train.py:57 in forward``."""
        return f"{self.file.rpartition('/')[2]}:{self.line or '?'} in {self.function}"


def main_thread(dump: str) -> tuple[Frame, ...]:
    """The main thread's frames in ``dump``, innermost first; empty when none can be read."""
    threads: list[list[str]] = []
    for line in dump.splitlines():
        if _THREAD.match(line):
            threads.append([line])
        elif threads:
            threads[-1].append(line)
    if not threads:
        return ()
    named = [thread for thread in threads if _MAIN in thread[0]]
    frames = map(_frame, (named or threads)[0 if named else -1])
    return tuple(frame for frame in frames if frame is not None)


def has_left(dump: str) -> bool:
    """Whether the main thread runs no script any more: its interpreter ends, or waits for its threads.

    A script's own lines are called from its ``<module>``; a dump that was cut off says nothing.
    """
    lines = dump.splitlines()
    whole = any(_THREAD.match(line) for line in lines) and all(line.strip() != "..." for line in lines)
    return whole and all(frame.function != "<module>" for frame in main_thread(dump))


def _frame(line: str) -> Frame | None:
    match = _FAULTHANDLER.match(line) or _PY_SPY.match(line)
    if match is None:
        return None
    number = match["line"] or ""
    return Frame(
        file=match["file"], line=int(number) if number.isdecimal() else 0, function=match["function"]
    )
