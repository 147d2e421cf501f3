"""What to make of a script that dies of an exception: whether a peer died first, and the note it leaves.

torch's elastic launchers read ``TORCHELASTIC_ERROR_FILE``; faultrun reads it
as the worker's own death note.
"""

import contextlib
import json
import re
import traceback
from pathlib import Path

_PEER = re.compile(
    r"connection (?:reset|closed|refused|aborted)|closed by peer|broken pipe|gloo|[nhml]ccl|process group"
    r"|heartbeat|all_?reduce|all_?gather|reduce_?scatter|remote process|timed out",
    re.IGNORECASE,
)


def tells_of_a_dead_peer(error: BaseException) -> bool:
    """Whether ``error`` looks like what a collective raises once another rank is gone.

    Connection errors and timeouts do, and errors of torch.distributed; others
    by the words of their message. Causes and contexts are looked at too.
    """
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        if isinstance(one, ConnectionError | TimeoutError):
            return True
        if any(kind.__name__ in ("DistError", "DistBackendError") for kind in type(one).__mro__):
            return True
        if isinstance(one, RuntimeError | OSError) and _PEER.search(str(one)):
            return True
        one = one.__cause__ or one.__context__
    return False


def write_note(path: str, error: BaseException, died_at_utc: float) -> None:
    """Leave ``error`` in torch's format, unless a note is there already.

    ``{"message": {"message", "extraInfo": {"py_callstack", "timestamp"}}}``
    as torch/distributed/elastic/multiprocessing/errors/error_handler.py writes it; the time is in seconds.
    """
    note = {
        "message": {
            "message": f"{type(error).__name__}: {error}",
            "extraInfo": {
                "py_callstack": "".join(traceback.format_exception(error)),
                "timestamp": str(int(died_at_utc)),
            },
        }
    }
    with contextlib.suppress(OSError):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("x", encoding="utf-8") as file:
            json.dump(note, file)
