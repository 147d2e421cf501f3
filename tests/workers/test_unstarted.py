"""What is said of a worker that could not be started."""

import errno
from pathlib import Path

import pytest

from faultrun.workers.unstarted import why


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError(errno.ENOENT, "", "trian"), "could not start trian: No such file or directory"),
        (OSError(errno.ENOEXEC, ""), "could not start python: Exec format error"),
        (
            OSError(errno.EMFILE, "", "/log/w.log"),
            "could not start a worker: Too many open files (ulimit -n)",
        ),
        (
            OSError(errno.ENFILE, ""),
            "could not start a worker: Too many open files in system (sysctl fs.file-max)",
        ),
        (OSError(errno.ENOMEM, ""), "could not start a worker: Cannot allocate memory"),
        (
            BlockingIOError(errno.EAGAIN, ""),
            "could not start a worker: Resource temporarily unavailable"
            " (ulimit -u, or the container's limit of pids)",
        ),
        (OSError("no number"), "could not start python: Input/output error"),
    ],
)
def test_the_program_or_what_ran_out_is_named(error: OSError, words: str) -> None:
    assert why(error, "python", Path("/log")) == words


def test_room_is_missing_in_the_log_dir(tmp_path: Path) -> None:
    error = OSError(errno.ENOSPC, "", "/x/worker_0.log")
    assert why(error, "python", tmp_path) == (
        f"could not start a worker: No space left on device in {tmp_path} (df -h)"
    )
