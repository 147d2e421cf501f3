"""``python -m benchmarks.campaigns.standby_kills --kills 200``: one run that is killed again and again.

A seed draws the rank that is killed and, one time in five, a standby that is killed, stopped or ended in the
same moment. Asked after each: training again, at most one cold start for a standby that was harmed; at the
end, that the supervisor has as many descriptors as before, hardly more memory, and that no process is left.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import journal, procfs
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import LOG_DIR

_PATIENCE_S = 400.0
_MORE_MIB = 4.0
_HARMS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM)


@dataclass(kw_only=True)
class Seen:
    """What the campaign found out."""

    back_s: list[float] = field(default_factory=list)
    warm: int = 0
    harmed: int = 0
    fds: list[int] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--torch", action="store_true", help="with torch, which takes longer")
    parser.add_argument("--within-s", type=float, default=float("inf"), help="begin no kill after that")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing of the run may outlive us
    with tempfile.TemporaryDirectory(prefix="standby-") as folder:
        seen = campaign(options, Path(folder))
    sys.stdout.write(_summary(seen, options))
    return 1 if seen.wrong else 0


def campaign(options: argparse.Namespace, folder: Path) -> Seen:
    """Carry it out in ``folder``."""
    chance, seen = random.Random(options.seed), Seen()
    script = str(ROOT / "benchmarks" / "jobs" / "steps.py")
    wishes = (f"--worker_num={options.workers}", f"--standby={options.workers}", f"--log_dir={LOG_DIR}")
    care = ("--max_restarts=1000000", "--backoff=1ms..1ms", "--grace=5s")
    kind = ("--framework=torch",) if options.torch else ("--framework=plain",)
    program = (script, *(("--torch",) if options.torch else ()))
    command = (sys.executable, "-m", "faultrun", *wishes, *care, *kind, *program)
    with Launched(command, folder, {"FAULTRUN_CONFIG": ""}) as run:
        until_s = time.monotonic() + options.within_s
        for kill in range(options.kills):
            if time.monotonic() > until_s:
                break
            lines = _ready(run, folder, kill, options.workers)
            _measure(run, seen)
            victim = chance.randrange(options.workers)
            pids = _workers(lines, kill)
            harmed = chance.random() < 0.2 and _harm(run, chance, set(pids.values()))
            seen.harmed += harmed
            os.kill(pids[victim], signal.SIGKILL)
            _back(run, folder, kill, seen, harmed=harmed)
            sys.stderr.write(f"kill {kill + 1}: {seen.back_s[-1]:.3f} s\n")
        os.kill(run.pid, signal.SIGTERM)
        run.wait_for_the_end(within_s=60.0)
        left = run.wait_until_gone(within_s=10.0)
        if left:
            seen.wrong.append(f"processes {sorted(left)} are left")
    _judge(seen)
    return seen


def _ready(run: Launched, folder: Path, life: int, workers: int) -> list[dict[str, Any]]:
    """Wait until every standby of this life is ready; the journal's lines."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        lines = journal.read(folder)
        said = [
            line
            for line in journal.of(lines, "StandbyChanged")
            if line["state"] in ("ready", "taken", "lost")
        ]
        state = {line["rank"]: line["state"] for line in said}
        trained = any(line["incarnation"] == life for line in journal.of(lines, "FirstStep"))
        if trained and sum(one == "ready" for one in state.values()) == workers:
            return lines
        run.stay(0.05)
    raise TimeoutError(f"no standbys in life {life}")


def _workers(lines: list[dict[str, Any]], life: int) -> dict[int, int]:
    started = journal.of(lines, "WorkerStarted")
    return {line["rank"]: line["pid"] for line in started if line["incarnation"] == life}


def _harm(run: Launched, chance: random.Random, workers: set[int]) -> bool:
    """Do something to one standby; False when none could be found."""
    standbys = sorted(
        pid for pid in run.processes() - workers - {run.pid} if _is_standby(pid) and _parent(pid) == run.pid
    )
    if not standbys:
        return False
    with suppress(ProcessLookupError):
        os.kill(chance.choice(standbys), chance.choice(_HARMS))
    return True


def _is_standby(pid: int) -> bool:
    with suppress(OSError):
        return b"FAULTRUN_STANDBY_CHANNEL=" in Path(f"/proc/{pid}/environ").read_bytes()
    return False


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _back(run: Launched, folder: Path, kill: int, seen: Seen, *, harmed: bool) -> None:
    """Wait until everybody trains again; count who was warm."""
    life = kill + 1
    deadline_s = time.monotonic() + _PATIENCE_S
    while not any(line["incarnation"] == life for line in journal.of(journal.read(folder), "FirstStep")):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"no training after kill {kill}")
        run.stay(0.02)
    lines = journal.read(folder)
    died = next(line["run_s"] for line in journal.of(lines, "WorkerExit") if line["incarnation"] == kill)
    first = next(line["run_s"] for line in journal.of(lines, "FirstStep") if line["incarnation"] == life)
    seen.back_s.append(first - died)
    started = [line for line in journal.of(lines, "WorkerStarted") if line["incarnation"] == life]
    cold = sum(not line["standby"] for line in started)
    seen.warm += not cold
    if cold > int(harmed):
        seen.wrong.append(f"kill {kill}: {cold} cold starts, {int(harmed)} standbys harmed")


def _measure(run: Launched, seen: Seen) -> None:
    seen.fds.append(len(list(Path(f"/proc/{run.pid}/fd").iterdir())))
    seen.rss_mib.append(procfs.rss_mib(run.pid))
    seen.processes.append(len(run.processes()))


def _judge(seen: Seen) -> None:
    if not seen.back_s:
        seen.wrong.append("nobody was killed")
        return
    if len(set(seen.fds[1:])) > 1:
        seen.wrong.append(
            f"descriptors of the supervisor: {seen.fds[1]} after the first kill, later {max(seen.fds)}"
        )
    if seen.rss_mib[-1] - seen.rss_mib[len(seen.rss_mib) // 4] > _MORE_MIB:
        seen.wrong.append("memory of the supervisor grows")
    if len(set(seen.processes)) > 1:
        seen.wrong.append(f"between {min(seen.processes)} and {max(seen.processes)} processes")


def _summary(seen: Seen, options: argparse.Namespace) -> str:
    ordered = sorted(seen.back_s) or [0.0]
    fds, rss_mib, processes = seen.fds or [0], seen.rss_mib or [0.0], seen.processes or [0]
    lines = [
        f"{len(seen.back_s)} kills, seed {options.seed}: {seen.warm} all warm, {seen.harmed} standbys harmed",
        f"death -> first step: median {ordered[len(ordered) // 2]:.3f} s, most {ordered[-1]:.3f} s",
        f"supervisor: {fds[0]}..{fds[-1]} descriptors, "
        f"{rss_mib[0]:.1f} -> {rss_mib[-1]:.1f} MiB; {processes[-1]} processes",
        *(f"WRONG: {line}" for line in seen.wrong),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
