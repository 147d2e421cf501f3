"""What a start does about the run that it finds in its log_dir, and an end about what it leaves there."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from faultrun.checkpoints.gasp_manifest import mark_finished
from faultrun.configs.originals import of_a_person, restore
from faultrun.errors import ConfigError
from faultrun.journal.logdir import Claimed, set_aside
from faultrun.model.run import RunState
from faultrun.model.spec import TERMINATION_VARIABLE, RestoreConfigs, Resume, RunSpec
from faultrun.workers.forked import Forked

ORIGINALS = "original"
_PATIENCE_S = 20.0
_PATIENCE_AFTER_STOP_S = 3.0
_INIT_PID = 1
_LONGEST = 4096


def begin_anew(claimed: Claimed, resume: Resume, say: Callable[[str], None]) -> None:
    """Move the run that ended out of the way. Killed anywhere in here, the next start does the rest.

    A new run must not begin from the recovery point that the run before wrote into a configuration;
    first bytes are given back while the journal still says that there is a run to set aside.
    """
    if resume is not Resume.ALWAYS:
        _give_back(
            claimed.path / ORIGINALS,
            told="{file} is as it was before the last run rewrote it",
            trouble="a configuration may still name a checkpoint of the run before",
            say=say,
        )
    where = set_aside(claimed.path, claimed.ended_run, staying=of_a_person(claimed.path))
    say(f"the run before had ended; it is now in {where}")


def answered_again(claimed: Claimed, spec: RunSpec, say: Callable[[str], None]) -> tuple[int, str]:
    """Exit code and last line of a run that had ended when its supervisor was killed, before it told them."""
    code = claimed.untold or 0
    line = f"run {claimed.run_id} had ended with exit code {code} when faultrun was killed"
    say(f"{line}; nothing is trained. The next start begins {'a new run' if code == 0 else 'where it was'}")
    past = claimed.past.state if claimed.past is not None else None
    at_end(spec, claimed.path, past, say)
    return code, line


def at_end(spec: RunSpec, log_dir: Path, end: RunState | None, say: Callable[[str], None]) -> None:
    """Note on its saves that a run ended well, and give configurations back where that was asked for."""
    if end is not None and end.exit_code == 0 and end.stop is None:
        roots, folders = absolute(spec.recovery.checkpoint_dirs), absolute(end.run.save_folders)
        for trouble in mark_finished(roots, folders, spec.run_id):
            say(f"cannot mark a save as finished; a later run {spec.run_id} would go on from it: {trouble}")
    if spec.recovery.restore_configs is RestoreConfigs.END:
        _give_back(
            log_dir / ORIGINALS,
            told="{file} is restored (--restore_configs)",
            trouble="a rewritten configuration was left as it is",
            say=say,
        )


def absolute(folders: Iterable[str]) -> tuple[str, ...]:
    """As seen from everywhere: workers and sidecars may change their directory."""
    return tuple(str(Path(folder).absolute()) for folder in folders)


def report_at_end(spec: RunSpec, log_dir: Path, say: Callable[[str], None], *, stopped: bool) -> None:
    """Write it if it is wanted. Whoever told us to stop may have little patience left.

    Forked, not executed: Python is there already, and no module of the working directory gets in its way.
    """
    if not spec.view.report:
        return
    if stopped and _clock_runs(spec):
        say(f"no time for a report: faultrun report --log_dir {log_dir}")
        return
    said = b""
    with suppress(OSError):
        said = _said_by_child(log_dir, _PATIENCE_AFTER_STOP_S if stopped else _PATIENCE_S)
    if said:
        say(f"{said.decode(errors='replace')}; {log_dir / 'report.html'}")
    else:
        say(f"no report yet: faultrun report --log_dir {log_dir}")


def _clock_runs(spec: RunSpec) -> bool:
    """Whether a platform kills what is left when its period is over: all of that is for the save."""
    told = os.environ.get(TERMINATION_VARIABLE, "")
    return os.getpid() == _INIT_PID or spec.supervision.windows.stop_by_utc_s is not None or bool(told)


def _said_by_child(log_dir: Path, patience_s: float) -> bytes:
    """The run in one line; empty when there was no report within ``patience_s``."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    writer = Forked(lambda: os.write(write_end, _write_report(log_dir)[:_LONGEST]), keep=(write_end,))
    os.close(write_end)
    writer.end(patience_s)
    with os.fdopen(read_end, "rb") as told:
        return told.read(_LONGEST)


def _write_report(log_dir: Path) -> bytes:
    from faultrun.cli.report import HTML, account_of, summary, write
    from faultrun.journal.logdir import read_record
    from faultrun.observe.report.document import document

    account = account_of(log_dir)
    data = document(account, read_record(log_dir))
    write(log_dir, log_dir / HTML, data, account)
    return summary(data).encode()


def _give_back(originals: Path, *, told: str, trouble: str, say: Callable[[str], None]) -> None:
    """Give back first bytes; whatever cannot be given back is said, and changes nothing else."""
    try:
        restored = restore(originals)
    except ConfigError as error:
        say(f"{trouble}:\n{error}")
        return
    for file, changed in restored.items():
        if changed:
            say(told.format(file=file))
