"""What a start does about the run that it finds in its log_dir, and an end about what it leaves there."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from faultrun.checkpoints.formats.faultrun_manifest import mark_finished
from faultrun.core.humanize import several
from faultrun.core.redact import without_secret_words
from faultrun.errors import ConfigError
from faultrun.files import bytes_from
from faultrun.journal.logdir import Claimed, read_record, recorded, set_aside
from faultrun.journal.own_names import is_own_report
from faultrun.model.run import RunState
from faultrun.model.spec.run_spec import RestoreConfigs, Resume, RunSpec
from faultrun.model.spec.windows import TERMINATION_VARIABLE
from faultrun.model.topology import RunId
from faultrun.supervisor.checkpoints.saves_of_runs import end_lists
from faultrun.workers.forked_helper import Forked

ORIGINALS = "original"
_PATIENCE_S, _PATIENCE_AFTER_STOP_S, _LOOK_AGAIN_S = 20.0, 3.0, 0.1
_INIT_PID, _HEAD_BYTES = 1, 4096
_LONGEST, _LONGEST_SHOWN = 4096, 160


def begin_anew(claimed: Claimed, resume: Resume, say: Callable[[str], None]) -> None:
    """Move the run that ended out of the way. Killed anywhere in here, the next start does the rest.

    A new run must not begin from the recovery point that the run before wrote into a configuration;
    first bytes are given back while the journal still says that there is a run to set aside.
    """
    if resume is not Resume.ALWAYS:
        _give_back(
            claimed.path / ORIGINALS,
            told="{file} is as it was before the last run rewrote it",
            trouble="a configuration may still name a checkpoint of the previous run",
            say=say,
        )
    from faultrun.configs.originals import of_a_person

    where = set_aside(claimed.path, claimed.ended_run, staying=of_a_person(claimed.path))
    if not claimed.other_script:
        say(f"the previous run had ended; its files are now in {where}")
        return
    alone = (
        "" if resume is Resume.ALWAYS else ", and its checkpoints are left alone (--resume=always uses them)"
    )
    say(
        f"run {claimed.ended_run} was of another script ({claimed.other_script}), so this is a new run; "
        f"the files of the other are now in {where}{alone}"
    )


def of_this_run(spec: RunSpec, claimed: Claimed) -> RunSpec:
    """Under the id that the run has; after another script nothing that lies there is its own."""
    resume = spec.recovery.resume
    if claimed.other_script and resume is Resume.AUTO:
        resume = Resume.NEVER
    return replace(spec, run_id=RunId(claimed.run_id), recovery=replace(spec.recovery, resume=resume))


def other_script(spec: RunSpec, record: Mapping[str, Any]) -> str:
    """The script of the run in ``record`` (run.json) where it is not that of ``spec``; '' where it is.

    One that was moved, or lies elsewhere with the same name and the same text, is the same. A text that is
    named before the options, as configurations are, counts too: another name with another text is another
    run. Nodes that are looked for under the name of the run go on with it.
    """
    prefix, arguments = (
        recorded(record, "spec", "command", "prefix"),
        recorded(record, "spec", "command", "script_args"),
    )
    if not (isinstance(prefix, list) and prefix and isinstance(arguments, list)):
        return ""
    if spec.agreement is not None and recorded(record, "run_id") == spec.run_id:
        return ""
    before, now = _scripts(prefix, arguments), _scripts(spec.command.prefix, spec.command.script_args)
    folder = Path(str(record.get("cwd") or ""))
    same = len(before) == len(now) and all(
        one == other or (Path(one).name == Path(other).name and _alike(folder / one, Path(other)))
        for one, other in zip(before, now, strict=True)
    )
    configs = [
        one
        for one, other in zip(
            _before_options(arguments), _before_options(spec.command.script_args), strict=False
        )
        if one not in (other, *before) and _are_two_texts(folder / one, Path(other))
    ]
    return "" if same and not configs else _shortened(" ".join((*before, *configs)))


def _scripts(prefix: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """What runs, and for a program that is no interpreter the first file of Python that it is given."""
    given = [word for word in arguments if word.endswith(".py")] if len(prefix) == 1 else []
    return [prefix[-1], *given[:1]]


def _before_options(arguments: Sequence[str]) -> list[str]:
    return list(takewhile(lambda word: not word.startswith("-"), arguments))


def _are_two_texts(before: Path, now: Path) -> bool:
    """Whether both are there, neither has bytes that no text has, and they differ or say nothing."""
    heads = [bytes_from(path, 0, _HEAD_BYTES) for path in (before, now) if path.is_file()]
    return len(heads) == 2 and b"\0" not in b"".join(heads) and not (heads[0] and _alike(before, now))


def _alike(before: Path, now: Path) -> bool:
    """Whether both are one file or have one text, or that cannot be told any more."""
    with suppress(OSError):
        return before.samefile(now) or before.read_bytes() == now.read_bytes()
    return True


def tells_apart(spec: RunSpec, claimed: Claimed, boot: str) -> str:
    """What tells this run from another with its id: the first supervisor that the log_dir had.

    Of several nodes, the ports where they meet: each may spell the hosts otherwise, and one machine
    serves no two runs at one port.
    """
    past, asked = claimed.past, spec.agreement
    if asked is not None:
        return "-".join(sorted({one.rpartition(":")[2] for one in asked.etcd.endpoints}))
    return past.boots[0] if past is not None and past.boots else boot


def going_on(claimed: Claimed, step: int | None) -> str:
    """That a run goes on, and what ended the life before where that was cut off, at ``step``."""
    if claimed.past is None or not claimed.past.state.cut_off:
        return claimed.note
    at = "" if step is None else f" at step {step}"
    by = "SIGKILL, the container's memory, an eviction, a power cut, no room for the journal"
    return f"{claimed.note}; its supervisor left no end{at} ({by})"


def asked_otherwise(claimed: Claimed, spec: RunSpec, asked: RunId) -> str:
    """What the command asks for that the run which it continues did not have; empty if nothing is new.

    By ``run.json``, which the start before wrote: workers, the script with its arguments, checkpoint folders.
    Of several nodes its name, too: ``asked`` is what the others look for it by.
    """
    before = recorded(read_record(claimed.path), "spec")
    nodes = recorded(before, "topology", "nodes")
    slots = [recorded(node, "slots") for node in nodes] if isinstance(nodes, list) else []
    workers = sum(count for count in slots if isinstance(count, int))
    folders = recorded(before, "recovery", "checkpoint_dirs")
    now_shown, now_folders = without_secret_words(spec.command.shown), " ".join(spec.recovery.checkpoint_dirs)
    shown = recorded(before, "command", "shown")
    found = []
    if workers and workers != spec.topology.world_size:
        found.append(f"{several(spec.topology.world_size, 'worker')} (before: {workers:,})")
    if isinstance(shown, str) and shown != now_shown:
        found.append(f"{_shortened(now_shown)} (before: {_shortened(shown)})")
    if isinstance(folders, list) and " ".join(map(str, folders)) != now_folders:
        were = " ".join(map(str, folders))
        found.append(f"--checkpoint_dir {now_folders or 'none'} (before: {were or 'none'})")
    changed = f"; the command has changed: {'; '.join(found)}" if found else ""
    if spec.recovery.resume is Resume.NEVER:
        changed += "; --resume=never counts for a new run, so with --log_dir=OTHER"
    if spec.agreement is None or asked == claimed.run_id:
        return changed
    return (
        f"{changed}; the command names run {asked}, and nodes with a new --log_dir look for that: "
        f"--rdzv-id={claimed.run_id} on all nodes goes on with this run, --log_dir=OTHER here begins {asked}"
    )


def answered_again(claimed: Claimed, spec: RunSpec, say: Callable[[str], None]) -> tuple[int, str]:
    """Exit code and last line of a run that had ended when its supervisor was killed, before it told them."""
    code = claimed.untold or 0
    line = f"run {claimed.run_id} had ended with exit code {code} when faultrun was killed"
    following = "begins a new run" if code == 0 else "continues it"
    say(f"{line}; nothing is trained now. The next start {following}")
    past = claimed.past.state if claimed.past is not None else None
    at_end(spec, claimed.path, past, say)
    return code, line


def at_end(spec: RunSpec, log_dir: Path, end: RunState | None, say: Callable[[str], None]) -> None:
    """Note on its saves that a run ended well; give configurations back unless it was told to stop."""
    if end is not None and end.trained:
        roots, folders = absolute(spec.recovery.checkpoint_dirs), absolute(end.run.save_folders)
        marked = mark_finished(roots, folders, spec.run_id)
        for trouble in (*marked, *end_lists(roots, spec.run_id, spec.command.script)):
            say(f"cannot mark a save as finished; a later run {spec.run_id} would go on from it: {trouble}")
    over = end is not None and end.done and end.stop is None
    if over and spec.recovery.restore_configs is RestoreConfigs.END and spec.recovery.rewrites:
        _restore_configs(spec, log_dir, say)


def _restore_configs(spec: RunSpec, log_dir: Path, say: Callable[[str], None]) -> None:
    """Unless the workers of another run may be about to read one: that run restores it."""
    from faultrun.configs.apply import in_place, take_back
    from faultrun.configs.turn import ConfigTurns
    from faultrun.supervisor.launch.rewriting import name_of_run

    turns, files = ConfigTurns(name_of_run(spec, log_dir / ORIGINALS)), in_place(spec.recovery.rewrites)
    told, trouble = "{file} is restored (--restore_configs)", "a rewritten configuration may be as it was"
    try:
        turns.take(files, within_s=_PATIENCE_AFTER_STOP_S, pause=lambda: time.sleep(_LOOK_AGAIN_S))
        _give_back(log_dir / ORIGINALS, told=told, trouble=trouble, say=say)
        for file in take_back(files):
            say(told.format(file=file))
    except ConfigError as error:
        say(f"{trouble}:\n{error}")
    finally:
        turns.release()


def absolute(folders: Iterable[str]) -> tuple[str, ...]:
    """Make ``folders`` absolute paths: workers and sidecars may change their directory."""
    return tuple(str(Path(folder).absolute()) for folder in folders)


def report_at_end(spec: RunSpec, log_dir: Path, say: Callable[[str], None], *, stopped: bool) -> None:
    """Write it if it is wanted, and say what the run cost and what it saved.

    The platform that told us to stop may soon kill us.

    Forked, not executed: Python is there already, and no module of the working directory gets in its way.
    """
    if not spec.view.report:
        return
    if stopped and _clock_runs(spec):
        say(f"report not written, to lose no time; to write it: faultrun report --log_dir {log_dir}")
        return
    said = b""
    with suppress(OSError):
        said = _said_by_child(log_dir, _PATIENCE_AFTER_STOP_S if stopped else _PATIENCE_S)
    cost, _, saved = said.decode(errors="replace").partition("\n")
    if cost:
        say(f"{cost}; {log_dir / 'report.html'}")
    else:
        say(f"the report could not be written; to try again: faultrun report --log_dir {log_dir} --html=FILE")
    if saved:
        say(saved)


def _shortened(command: str) -> str:
    return command if len(command) <= _LONGEST_SHOWN else f"{command[: _LONGEST_SHOWN - 3]}..."


def _clock_runs(spec: RunSpec) -> bool:
    """Whether a platform kills what is left when its period is over: all of that is for the save."""
    told = os.environ.get(TERMINATION_VARIABLE, "")
    return os.getpid() == _INIT_PID or spec.supervision.windows.stop_by_utc_s is not None or bool(told)


def _said_by_child(log_dir: Path, patience_s: float) -> bytes:
    """The run in one line and what it saved in another; empty when there was no report in ``patience_s``."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    writer = Forked(lambda: os.write(write_end, _write_report(log_dir)[:_LONGEST]), keep=(write_end,))
    os.close(write_end)
    writer.end(patience_s)
    with os.fdopen(read_end, "rb") as told:
        return told.read(_LONGEST)


def _write_report(log_dir: Path) -> bytes:
    from faultrun.cli.report import HTML, JSON, MARKDOWN, account_of, summary, write
    from faultrun.journal.logdir import read_record
    from faultrun.observe.report.document import document
    from faultrun.observe.report.pages import html

    there = [file for name in (HTML, MARKDOWN, JSON) if (file := log_dir / name).exists()]
    if not all(map(is_own_report, there)):
        return b""  # another user's, in a folder that is not ours alone
    data = document(account_of(log_dir), read_record(log_dir))
    write(log_dir, data, log_dir / HTML, html(data))
    return f"{summary(data)}\n{data['savings']['text']}".encode()


def _give_back(originals: Path, *, told: str, trouble: str, say: Callable[[str], None]) -> None:
    """Give back first bytes; whatever cannot be given back is said, and changes nothing else."""
    from faultrun.configs.originals import restore

    try:
        restored = restore(originals)
    except ConfigError as error:
        say(f"{trouble}:\n{error}")
        return
    for file, changed in restored.items():
        if changed:
            say(told.format(file=file))
