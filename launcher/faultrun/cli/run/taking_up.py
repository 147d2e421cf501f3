"""What a start does about the run that it finds in its log_dir, before anything of its own begins."""

from collections.abc import Callable, Iterable
from pathlib import Path

from faultrun.checkpoints.finish_marks import mark_finished
from faultrun.configs.originals import of_a_person, restore
from faultrun.errors import ConfigError
from faultrun.journal.logdir import Claimed, set_aside
from faultrun.model.run import RunState
from faultrun.model.spec import RestoreConfigs, Resume, RunSpec

ORIGINALS = "original"


def begin_anew(claimed: Claimed, resume: Resume, say: Callable[[str], None]) -> None:
    """Move the run that ended out of the way. Killed anywhere in here, the next start does the rest.

    A new run must not begin from the recovery point that the run before wrote into a configuration;
    first bytes are given back while the journal still says that there is a run to set aside.
    """
    if resume is not Resume.ALWAYS:
        give_back(
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
        roots, folders = _absolute(spec.recovery.checkpoint_dirs), _absolute(end.run.save_folders)
        for trouble in mark_finished(roots, folders, spec.run_id):
            say(f"cannot mark a save as finished; a later run {spec.run_id} would go on from it: {trouble}")
    if spec.recovery.restore_configs is RestoreConfigs.END:
        give_back(
            log_dir / ORIGINALS,
            told="{file} has its first bytes back (--restore_configs)",
            trouble="a rewritten configuration was left as it is",
            say=say,
        )


def _absolute(folders: Iterable[str]) -> tuple[str, ...]:
    return tuple(str(Path(folder).absolute()) for folder in folders)


def give_back(originals: Path, *, told: str, trouble: str, say: Callable[[str], None]) -> None:
    """Give back first bytes; whatever cannot be given back is said, and changes nothing else."""
    try:
        restored = restore(originals)
    except ConfigError as error:
        say(f"{trouble}:\n{error}")
        return
    for one in restored:
        if one.changed:
            say(told.format(file=one.file))
