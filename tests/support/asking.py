"""Asks faultrun as a person would, up to the point where something would be started."""

import sys
from collections.abc import Mapping, Sequence

import pytest

from faultrun.cli.options.command import FaultrunGroup, run_command
from faultrun.cli.options.settings import Asked, Settings, collect
from faultrun.cli.resolve.context import ProcessContext
from faultrun.cli.resolve.spec import Resolved, resolve
from faultrun.errors import FaultrunError
from faultrun.model.spec.run_spec import RunSpec

SOME_PID = 4711


def program() -> FaultrunGroup:
    """The command line with ``run`` alone; running it answers what was asked."""
    return FaultrunGroup(run_command(lambda asked: asked), version="9.9")


def ask(*words: str) -> Asked:
    answer = program().main(list(words), "faultrun", standalone_mode=False)
    assert isinstance(answer, Asked)
    return answer


def settle(*words: str, environ: Mapping[str, str] | None = None) -> Settings:
    return collect(ask(*words), environ or {})


def plan(
    *words: str,
    environ: Mapping[str, str] | None = None,
    pid: int = SOME_PID,
    threads: str = "1",
    at_terminal: bool = False,
) -> Resolved:
    """``threads`` is the user's OMP_NUM_THREADS; empty: it is not set, and what is done then is said."""
    return resolve(*_asked(words, environ, pid, threads, at_terminal=at_terminal))


def plan_of_several(*words: str, environ: Mapping[str, str] | None = None) -> RunSpec:
    """What is settled for one of several nodes."""
    return resolve(*_asked(words, environ, SOME_PID, "1", at_terminal=False)).spec


def _asked(
    words: Sequence[str], environ: Mapping[str, str] | None, pid: int, threads: str, *, at_terminal: bool
) -> tuple[Settings, ProcessContext]:
    theirs = {"OMP_NUM_THREADS": threads} if threads else {}
    around = ProcessContext(
        environ={**theirs, **(environ or {})}, python=sys.executable, import_path=tuple(sys.path), pid=pid,
        at_terminal=at_terminal,
    )  # fmt: skip
    return settle(*words, environ=environ), around


def refusal(*words: str, environ: Mapping[str, str] | None = None) -> FaultrunError:
    """The error that a person would read; it is always in three lines."""
    with pytest.raises(FaultrunError) as caught:
        plan(*words, environ=environ)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3, lines
    assert lines[1].startswith("  because: ")
    assert lines[2].startswith("  try:     ")
    return caught.value
