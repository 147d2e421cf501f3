"""Something runs out while a training runs: how it was used up, what was said, and whether that is right."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.campaigns import engine
from benchmarks.campaigns.engine import NotPossible
from benchmarks.harness import journal
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import LOG_DIR
from benchmarks.harness.notes import select
from benchmarks.harness.procfs import rss_mib

_JOB = str(ROOT / "benchmarks" / "jobs" / "starved.py")
_START_S, _END_S, _GONE_S = 60.0, 120.0, 10.0
_FLOOD_S = 10.0
_LOG_MIB = 32
_FEW_INODES = "size=16m,nr_inodes=60"
_FEW_BYTES = "size=2m"
_ROOMY = "size=64m"
_SHM = 'mount -t tmpfs -o size=4m none /dev/shm && exec "$0" "$@"'
_GROWTH_MIB = 3.0
_LEAST_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``deed`` uses something up in a file system of ``small`` (mount options) at ``folder``.

    ``said`` must all be on the console, ``code`` is the exit code; ``again``: the
    next start, with room, must end with 0.
    """

    name: str
    deed: str
    said: tuple[str, ...]
    code: int
    small: str = ""
    folder: str = LOG_DIR
    again: bool = False
    own_shm: bool = False
    descriptors: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``told`` is what a person reads of it; ``wrong`` what should not be."""

    told: str
    code: int
    wrong: tuple[str, ...]


CASES = (
    Case(
        name="no inode for the next life's logs",
        deed="inodes",
        small=_FEW_INODES,
        said=("could not start a worker: No space left", "no inode is left: df -i"),
        code=71,
        again=True,
    ),
    Case(
        name="no byte for the next life's logs",
        deed="bytes",
        small=_FEW_BYTES,
        said=("could not start a worker: No space left", "df -h"),
        code=71,
        again=True,
    ),
    Case(
        name="no inode for a checkpoint",
        deed="save",
        small=_FEW_INODES,
        folder="small",
        said=("the disk is full: OSError: [Errno 28]", "df -i"),
        code=0,
    ),
    Case(
        name="no descriptor in the supervisor",
        deed="wait",
        descriptors=True,
        said=("could not start a worker: Too many open files (ulimit -n)",),
        code=71,
        again=True,
    ),
    Case(name="/dev/shm, by name", deed="shm", own_shm=True, said=("shared memory is full: SIGBUS",), code=0),
    Case(
        name="/dev/shm, nameless",
        deed="shm-nameless",
        own_shm=True,
        said=("a mapped file lost its page", "a larger /dev/shm"),
        code=0,
    ),
)


def run(case: Case, folder: Path) -> Outcome:
    """Train, use it up, and look at what became of it. NotPossible where no file system may be mounted."""
    with _small_disk(case, folder):
        with Launched(_command(case, case.deed), folder, {}) as training:
            training.wait_for(
                lambda: len(select(training.notes, "ready", life=0)) == 2, within_s=_START_S, what="training"
            )
            if case.descriptors:
                _take_descriptors(training)
            (folder / "go").touch()
            code = training.wait_for_the_end(within_s=_END_S)
            text, left = training.console, training.wait_until_gone(within_s=_GONE_S)
        wrong = [f"not said: {words}" for words in case.said if words not in text]
        wrong += [f"exit code is not {case.code}"] * (code != case.code)
        wrong += [f"orphans {sorted(left)}"] * bool(left)
        wrong += _journal_torn(folder)
        if case.again:
            wrong += _next_start(case, folder)
        return Outcome(told=_told(text), code=code, wrong=tuple(wrong))


def run_flood(folder: Path) -> Outcome:
    """A worker prints as fast as it goes: the supervisor's memory, the disk, the pace of both ranks."""
    alone_mb_s = _flood_alone(folder)
    options = (f"--log_max_size={_LOG_MIB}m",)
    command = _faultrun(options, (_JOB, "flood", f"--for_s={_FLOOD_S:g}"))
    with Launched(command, folder, {}) as training:
        training.wait_for(
            lambda: len(select(training.notes, "ready")) == 2, within_s=_START_S, what="training"
        )
        before = rss_mib(training.pid)
        (folder / "go").touch()
        training.wait_for(
            lambda: bool(select(training.notes, "flooded")), within_s=_FLOOD_S + _START_S, what="a flood"
        )
        growth = rss_mib(training.pid) - before
        code = training.wait_for_the_end(within_s=_END_S)
    mb_s = select(training.notes, "flooded")[0].number / _FLOOD_S / 1e6
    slowest_s = select(training.notes, "slowest")[0].number
    kept = sum(one.stat().st_size for one in (folder / LOG_DIR / "incarnation_0").glob("worker_1.log*"))
    wrong = ["the supervisor grew"] * (growth > _GROWTH_MIB)
    wrong += ["the flood was held up"] * (mb_s < _LEAST_SHARE * alone_mb_s)
    wrong += ["the log is not bounded"] * (kept > 3 * (_LOG_MIB << 20))
    wrong += [f"exit code {code}"] * (code != 0)
    told = (
        f"{mb_s:.0f} MB/s ({alone_mb_s:.0f} into a bare file); supervisor {growth:+.1f} MiB;"
        f" log {kept >> 20} MiB; p99 of the other rank's 10 ms steps {slowest_s * 1e3:.0f} ms"
    )
    return Outcome(told=told, code=code, wrong=tuple(wrong))


def _flood_alone(folder: Path) -> float:
    program = (
        "import sys, time; from pathlib import Path; from benchmarks.jobs.starved import flood;"
        " print(flood(2.0), file=sys.stderr)"
    )
    with (folder / "bare").open("wb") as bare:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=bare, stderr=subprocess.PIPE, cwd=ROOT, check=True
        )
    (folder / "bare").unlink()
    return int(done.stderr) / 2.0 / 1e6


def _command(case: Case, deed: str) -> tuple[str, ...]:
    command = _faultrun((), (_JOB, deed, f"--folder={case.folder}"))
    return ("unshare", "--mount", "sh", "-c", _SHM, *command) if case.own_shm else command


def _faultrun(options: Sequence[str], program: Sequence[str]) -> tuple[str, ...]:
    fixed = ("--framework=plain", "--worker_num=2", f"--log_dir={LOG_DIR}", "--report=False")
    return (sys.executable, "-m", "faultrun", *fixed, *options, *program)


@contextmanager
def _small_disk(case: Case, folder: Path) -> Iterator[None]:
    """A small file system where the case wants one. NotPossible where none may be mounted."""
    small = folder / case.folder
    small.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", case.small or _ROOMY, "none", str(small))
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotPossible(f"mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(small)], capture_output=True, check=False)


def _take_descriptors(training: Launched) -> None:
    """From now on the supervisor may open nothing; then a worker dies."""
    highest = max(int(one.name) for one in Path(f"/proc/{training.pid}/fd").iterdir())
    _, hard = resource.prlimit(training.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(training.pid, resource.RLIMIT_NOFILE, (highest + 1, hard))
    victim = select(training.notes, "ready", rank=1)[0].pid
    os.kill(victim, signal.SIGKILL)


def _next_start(case: Case, folder: Path) -> list[str]:
    for ballast in (folder / case.folder).glob("starved-*"):
        ballast.unlink()
    with Launched(_command(case, "none"), folder, {}) as training:
        code = training.wait_for_the_end(within_s=_END_S)
    return [f"the next start ended with {code}"] * (code != 0) + _journal_torn(folder)


def _journal_torn(folder: Path) -> list[str]:
    """Every line is whole and none is missing; of the run's journal and of those before it."""
    wrong = []
    for path in (folder / LOG_DIR).rglob("journal.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        torn = [line for line in lines[:-1] if not line.endswith(b"\n")]
        whole = [json.loads(line)["seq"] for line in lines if line.endswith(b"\n")]
        if torn or whole != list(range(len(whole))):
            wrong.append(f"{path.parent.name}: the journal is torn")
    return wrong if journal.read(folder) else [*wrong, "there is no journal"]


def _told(text: str) -> str:
    """The first card's cause, and the run's last line."""
    causes = [line.strip() for line in text.splitlines() if line.startswith("  cause ")]
    last = [line for line in text.splitlines() if "; exit code " in line]
    return "; ".join(part.partition("faultrun: ")[2] or part for part in (*causes[:1], *last[-1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One of them, by its number and what runs out in it."""

    number: int
    name: str
    run: Callable[[Path], Outcome]


def trials() -> list[Trial]:
    """All of them."""
    runs: dict[str, Callable[[Path], Outcome]] = {case.name: partial(run, case) for case in CASES}
    runs["a flood of output"] = run_flood
    return [Trial(number=number, name=name, run=one) for number, (name, one) in enumerate(runs.items(), 1)]


_TOLD_CHARS = 160

CAMPAIGN: engine.Campaign[Trial, Outcome] = engine.Campaign(
    name="resources",
    cases="trials",
    run=lambda trial, folder: trial.run(folder),
    judge=lambda _, outcome: outcome.wrong,
    columns={
        "what_runs_out": lambda trial, _: trial.name,
        "told": lambda _, outcome: outcome.told[:_TOLD_CHARS],
        "exit": lambda _, outcome: outcome.code,
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run those that were asked for."""
    asked = engine.options("resources", __doc__).parse_args(argv)
    return engine.exit_code(CAMPAIGN.carry_out(trials(), asked))


if __name__ == "__main__":
    sys.exit(main())
