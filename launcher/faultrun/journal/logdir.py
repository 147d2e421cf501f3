"""The log_dir: claimed by one run at a time, continued if that was cut off, set aside if it had ended.

``.lock`` is taken first and kept to the end. The journal is the last thing that leaves a
log_dir, so that a supervisor that was killed while it set an ended run aside finds it again and goes on.
"""

import errno
import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from faultrun.errors import LogDirError
from faultrun.files import bytes_from, replace_durably, sync_folder
from faultrun.journal.append import FILE_NAME, utc_now
from faultrun.journal.codec import CodecError, decode
from faultrun.journal.lines import journal_lines
from faultrun.journal.own_names import in_the_way, own_entries
from faultrun.journal.read import Past, replay
from faultrun.locks import Busy, Lock, hold
from faultrun.model.events import RunStarted
from faultrun.model.run import RunState
from faultrun.model.spec.output import Logs
from faultrun.model.topology import NODE_FOLDER, NodeId, node_folder

RECORD = "run.json"
Value = TypeVar("Value")
_ENDED = "ended"
LOCK = ".lock"
_RUNS = "runs"
_PROBE_BYTES = 4096
_MOST_NAMED = 4
_LOOKS_S = 0.1
"""Who only looks whether the log_dir is locked holds its lock for less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A log_dir that is ours until ``lock`` is let go of or this process ends, however it ends.

    ``past`` is None for a new run; ``note`` says what a person should know.
    ``ended_run`` is the id of a run that ended and still lies here: ``set_aside`` moves it. So it does with
    one of ``other_script``, whose supervisors were ``boots``.
    ``untold`` is the exit code of a run that ended and whose supervisor was killed before it could return it.
    """

    path: Path
    past: Past | None
    run_id: str
    note: str = ""
    ended_run: str = ""
    untold: int | None = None
    other_script: str = ""
    boots: tuple[str, ...] = ()
    lock: Lock | None = field(default=None, compare=False, repr=False)

    @property
    def journal(self) -> Path:
        """Path of the journal."""
        return self.path / FILE_NAME


def claim(
    path: Path, start: RunState, run_id: str, other_script: Callable[[Mapping[str, Any]], str] = lambda _: ""
) -> Claimed:
    """Lock ``path`` for this process and see what lies in it.

    ``start`` is the state that a new run would begin with; ``other_script`` names the script of a record
    where it is not ours, else nothing: another script is another run. Raises
    LogDirError when the folder cannot be written or belongs to a living run.
    """
    make(path)
    _prove_free(path)
    lock = _lock(path)
    found = _found(path, start, run_id)
    script = other_script(read_record(path)) if found.past is not None else ""
    if script:
        anew = replace(found, past=None, run_id=run_id, note="", untold=None)
        found = replace(anew, ended_run=found.run_id, other_script=script)
    return replace(found, lock=lock)


def claim_again(claimed: Claimed) -> Claimed:
    """Make and lock the log_dir of a living run once more after it was removed or moved away.

    LogDirError where it cannot be written, or another run has it by now.
    """
    again = replace(claimed, lock=_lock(claimed.path))
    make(claimed.path)
    return again


def make_ours(path: Path) -> None:
    """Make ``path`` the log_dir of a run to come, for what a verb keeps there. LogDirError as for a run."""
    if not (path / LOCK).exists():
        make(path)
        _prove_free(path)
        _lock(path).release()


def _prove_free(path: Path) -> None:
    """LogDirError where a run would write over files of another program: no run of ours ever was there.

    Our lock stays in every log_dir; a copy of one has its journal.
    """
    begins = bytes_from(path / FILE_NAME, 0, _PROBE_BYTES)
    ours = (path / LOCK).exists() or all(mark in begins for mark in (b'"seq":', b'"run_s":', b'"event":'))
    if ours or not (names := in_the_way(path)):
        return
    shown = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
    raise LogDirError(
        f"the log_dir {path} has files that a run would write over: {shown}",
        because="no run of faultrun was ever there, so they are another program's",
        hint="--log_dir=DIR with a folder of its own, or move these files",
    )


def _found(path: Path, start: RunState, run_id: str) -> Claimed:
    journal = path / FILE_NAME
    if not journal.exists():
        return Claimed(path=path, past=None, run_id=run_id)
    past = replay(journal, start)
    record = read_record(path)
    old_id = past.run_id or str(record.get("run_id") or run_id)
    if past.state.done and past.state.stop is None and _untold(past, record):
        return Claimed(path=path, past=past, run_id=old_id, untold=past.state.exit_code)
    if past.state.trained:
        return Claimed(path=path, past=None, run_id=run_id, ended_run=old_id)
    if past.state.plan is None and not past.boots:
        return Claimed(path=path, past=None, run_id=run_id)
    begun = past.state.plan is not None
    after = f"after incarnation {past.state.incarnation}" if begun else "that had no plan here yet"
    note = f"going on with run {old_id} {after}"
    if past.state.given_up:
        why = past.ended.partition("\n")[0]
        note += f", with a fresh budget: it had been given up (exit code {past.state.exit_code}), {why}"
    note = f"{note} ({past.torn})" if past.torn else note
    return Claimed(path=path, past=past, run_id=old_id, note=note, boots=past.boots)


def set_aside(path: Path, run_id: str, *, staying: Iterable[Path] = ()) -> Path:
    """Move what the run left to ``runs/<run_id>``, but for what is ``staying``; say where.

    Only names of our own are moved (``own_names``): whatever else lies there is another's. The journal goes
    last and nothing is overwritten: killed at any moment, the next call goes on where this one was.
    LogDirError when the journal cannot be moved.
    """
    import shutil  # noqa: PLC0415  a start where no run has ended can do without half a megabyte of archives

    journal, record = path / FILE_NAME, path / RECORD
    target = _place_for(path / _RUNS, run_id)
    try:
        _move_own(path, target, {journal, record, *staying})
        if record.exists():  # it says how the run ended: it must not leave before the journal
            shutil.copy2(record, target / RECORD)
        sync_folder(path)
        journal.rename(target / FILE_NAME)
        record.unlink(missing_ok=True)
        sync_folder(target)
    except OSError as error:
        raise LogDirError(
            f"the previous run cannot be moved out of the log_dir {path}",
            because=f"{error.strerror or error} ({target})",
            hint=f"move it yourself, or --log_dir=OTHER: ls -la {path}",
        ) from error
    return target


def _place_for(runs: Path, run_id: str) -> Path:
    """A folder that holds no run; one that holds parts without a journal is where a move was cut off."""
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in run_id).lstrip(".") or "run"
    target, number = runs / name, 2
    while (target / FILE_NAME).exists():
        target, number = runs / f"{name}_{number}", number + 1
    return target


def _move_own(folder: Path, target: Path, staying: set[Path]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    entries = [entry for entry in own_entries(folder) if entry not in staying]
    for entry in entries:
        place = target / entry.relative_to(folder)
        with suppress(OSError):
            place.parent.mkdir(exist_ok=True)
            _move(entry, place)
    for emptied in {entry.parent for entry in entries} - {folder}:
        with suppress(OSError):  # something of another program lies there
            emptied.rmdir()
    sync_folder(target)


def _move(entry: Path, target: Path) -> None:
    """Rename; copy and delete where ``entry`` is a mount of its own. What is there already keeps its name."""
    number = 2
    free = target
    while os.path.lexists(free):
        free, number = target.with_name(f"{target.name}_{number}"), number + 1
    try:
        entry.rename(free)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        import shutil  # noqa: PLC0415  as above

        shutil.move(entry, free)


def _untold(past: Past, record: dict[str, Any]) -> bool:
    """Whether the newest supervisor was lost between the end of the run and its own.

    Journals without a run id are of versions that left no mark at their end.
    """
    ended = record.get(_ENDED)
    told = isinstance(ended, dict) and ended.get("boot") in past.boots[-1:]
    return bool(past.run_id) and not told


def make(path: Path) -> None:
    """Make the folder and prove that it can be written. LogDirError with the reason when it cannot."""
    lacks = ""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe, renamed = path / f".writable.{os.getpid()}", path / f".renamed.{os.getpid()}"
        try:
            probe.write_bytes(bytes(_PROBE_BYTES))  # an empty file fits onto a full disk
            lacks = "no file can be added to there: "
            with probe.open("ab") as file:
                file.write(b"\0")
            lacks = "no file can be renamed there: "
            probe.replace(renamed)
        finally:
            probe.unlink(missing_ok=True)
            renamed.unlink(missing_ok=True)
    except OSError as error:
        because = f"{lacks}{error.strerror or error}"
        hint = "--log_dir=DIR with a folder that this user may write"
        raise LogDirError(f"cannot write to the log_dir {path}", because=because, hint=hint) from error


def read_record(path: Path) -> dict[str, Any]:
    """``run.json`` of a log_dir; where it cannot be read, what the journal says of the newest start."""
    with suppress(OSError, ValueError):
        record = json.loads((path / RECORD).read_bytes())
        if isinstance(record, dict):
            return record
    return _recovered_record(path / FILE_NAME)


def of_this_machine(path: Path, machine: str) -> Path:
    """The log_dir that ``path`` means: of several nodes the folder of ``machine`` below it, or the only one.

    ``path`` itself where a run lies in it, and where it cannot be told which node is meant.
    """
    nodes = nodes_in(path)
    own = path / node_folder(NodeId(machine))
    if own in nodes:
        return own
    return nodes[0] if len(nodes) == 1 else path


def nodes_in(path: Path) -> tuple[Path, ...]:
    """The folders of nodes that were given ``path`` as log_dir; none where a run lies in it itself."""
    return () if _has_run(path) else tuple(filter(_has_run, sorted(path.glob(f"{NODE_FOLDER}*"))))


def which_log_dir(path: Path) -> str:
    """What to try where ``path`` has no run: the folders of the nodes that lie there, or those of others."""
    if not (nodes := nodes_in(path)):
        return "--log_dir=DIR, the log directory printed at the start"
    return " or ".join(f"--log_dir={node}" for node in nodes[:_MOST_NAMED])


def _has_run(folder: Path) -> bool:
    return (folder / FILE_NAME).exists() or (folder / RECORD).exists()


def beside(folder: Path) -> tuple[Path, ...]:
    """The folders of the other nodes of the same run, where the nodes share their log_dir."""
    if not folder.name.startswith(NODE_FOLDER):
        return ()
    run_id = recorded(read_record(folder), "run_id")
    others = sorted(folder.parent.glob(f"{NODE_FOLDER}*"))
    return tuple(one for one in others if one != folder and recorded(read_record(one), "run_id") == run_id)


def recorded(record: object, *names: str) -> object:
    """What ``run.json`` says under ``names``, one within the other; None where it says nothing."""
    for name in names:
        record = record.get(name) if isinstance(record, dict) else None
    return record


def recorded_as(record: object, kind: type[Value], *names: str) -> Value:
    """The value of ``kind`` that is there, else that of its defaults: of a version before, or none at all."""
    try:
        found: Value = decode(recorded(record, *names), kind)
    except CodecError:
        return kind()
    return found


def logs_of(record: object) -> Logs:
    """How the logs of workers are called and read, by ``run.json``."""
    return recorded_as(record, Logs, "spec", "logs")


def mark_ended(path: Path, boot: str, exit_code: int) -> None:
    """Note that supervisor ``boot`` has done all it had to do and returns ``exit_code`` now."""
    ended = {"boot": boot, "exit_code": exit_code, "at_utc": utc_now()}
    with suppress(OSError):  # without the mark the next start gives the same answer once more
        write_record(path, {**read_record(path), _ENDED: ended})


def _recovered_record(journal: Path) -> dict[str, Any]:
    record: dict[str, Any] = {}
    with suppress(OSError):
        for line in journal_lines(journal):
            match line.event:
                case RunStarted(run_id=run_id, boot=boot, pid=pid, node=node):
                    known = {"run_id": run_id, "boot": boot, "pid": pid, "node": node}
                    record = {name: value for name, value in known.items() if value}
                    record["started_at_utc"] = line.at_utc
    return record


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Replace ``run.json`` in one step, also for a machine that loses its power."""
    replace_durably(path / RECORD, (json.dumps(record, indent=2) + "\n").encode())


def _lock(path: Path) -> Lock:
    try:
        return hold(path / LOCK, wait_s=_LOOKS_S)
    except Busy as busy:
        raise _in_use(path, busy) from None
    except OSError as error:
        because = f"{error.strerror or error} ({path / LOCK})"
        hint = f"a --log_dir of your own, or see whose this one is: ls -la {path}"
        raise LogDirError(f"the log_dir {path} cannot be locked", because=because, hint=hint) from error


def _in_use(path: Path, busy: Busy) -> LogDirError:
    pid, record = busy.pid, read_record(path)
    run = f"run {record.get('run_id', '?')} (pid {record.get('pid', '?')})"
    if pid is None or pid == record.get("pid"):
        because = f"{run} holds its lock"
        hint = f"--log_dir=OTHER, or end that run: faultrun stop --log_dir {path}"
        return LogDirError(f"the log_dir {path} is in use by another run", because=because, hint=hint)
    because = f"{busy.holder} holds its lock; the run that was here is {run}"
    hint = f"--log_dir=OTHER, or look at that process: ps -fp {pid}"
    return LogDirError(f"the log_dir {path} is in use by another process", because=because, hint=hint)
