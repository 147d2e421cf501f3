"""``python -m benchmarks.campaigns.pods --pods 100 --early 5``: pods with faultrun as PID 1 are deleted.

``--pods``: preStop hook, SIGTERM and SIGKILL on a kubelet's schedule, at a
moment drawn by chance. ``--early``: so many SIGTERMs for each of 0, 1, 5, 20
and 100 ms after ``exec``. Needs PID namespaces and no cluster. Ends with 1 when
a promise was broken; what such a pod left is kept, and the table says where.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from benchmarks.campaigns.pods_plan import EARLY_MS, Deletion, Hook, draw
from benchmarks.campaigns.pods_run import FAULTRUN, Left, broken, run
from benchmarks.harness import machine, pod

_AT_ONCE = 4
_HEADS = ("pod", "deleted at", "how", "window", "a save takes", "saved", "exit", "ended in", "promises")
_STOPPED = 143
_PATIENCE_S = 60.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaigns.pods", description=__doc__)
    parser.add_argument("--pods", type=int, default=100, help="pods that are deleted [100]")
    parser.add_argument("--early", type=int, default=5, help="signals for each of the early moments [5]")
    parser.add_argument("--seed", type=int, default=1, help="[1]")
    asked = parser.parse_args(argv)
    if not pod.can_be_made():
        sys.exit("no PID namespaces here, or no `env --block-signal` (coreutils 8.31)")
    kept = []
    if asked.early:
        kept.append(_early(asked.early))
    if asked.pods:
        kept.append(_deleted(draw(asked.pods, asked.seed)))
    print(f"load average {machine.load()} on {machine.describe()['cores']} cores")
    return 0 if all(kept) else 1


def _early(each: int) -> bool:
    lost = []
    for after_ms in EARLY_MS:
        codes = Counter(early(after_ms) for _ in range(each))
        shown = ", ".join(f"{count} ended with {code}" for code, count in codes.items())
        print(f"SIGTERM {after_ms} ms after exec: {shown}", flush=True)
        lost += [after_ms for code in codes if code != _STOPPED]
    return not lost


def early(after_ms: int) -> int | None:
    """The exit code after a SIGTERM so soon; None when it was lost."""
    with tempfile.TemporaryDirectory(prefix="early-") as folder:
        command = (*FAULTRUN, "--framework=plain", "--worker_num=1", "sleep", "600")
        with pod.Pod(command, Path(folder), {}) as one:
            until_s = one.began_s + after_ms / 1000
            while time.monotonic() < until_s:
                pass
            one.signal(signal.SIGTERM)
            return one.ends_within(_PATIENCE_S)


def _deleted(deletions: Sequence[Deletion]) -> bool:
    print(f"\n| {' | '.join(_HEADS)} |\n|{'---|' * len(_HEADS)}", flush=True)
    with ThreadPoolExecutor(_AT_ONCE) as several:
        done = list(several.map(_one, deletions))
    print(f"\n{summary(done)}", flush=True)
    return not any(broken(deletion, left) for deletion, left in done)


def _one(deletion: Deletion) -> tuple[Deletion, Left]:
    folder = Path(tempfile.mkdtemp(prefix=f"pod-{deletion.number}-"))
    left = run(deletion, folder)
    found = broken(deletion, left)
    if not found:
        shutil.rmtree(folder)
    verdict = f"**broken**: {'; '.join(found)} (see {folder})" if found else "kept"
    saved = ", ".join(f"rank {rank} step {step}" for rank, step in left.files) or "-"
    cells = (
        deletion.number,
        f"{'exec' if deletion.starting else 'first step'} +{deletion.at_s:.2f} s",
        deletion.hook.value,
        f"{deletion.window_s:.1f} s",
        f"{deletion.save_s:.1f} s",
        saved,
        left.exit_code,
        f"{left.took_s:.1f} s",
    )
    print(f"| {' | '.join(map(str, cells))} | {verdict} |", flush=True)
    return deletion, left


def summary(done: Sequence[tuple[Deletion, Left]]) -> str:
    """What the deletions proved."""
    fine = sum(not broken(*one) for one in done)
    asked = [(deletion, left) for deletion, left in done if left.newest >= 0]
    fitting = [left for deletion, left in asked if deletion.save_s < left.granted_s]
    never = sum(not left.came_up for _, left in done)
    ways = Counter(deletion.hook for deletion, _ in done)
    return "\n".join(
        (
            f"{fine} of {len(done)} pods kept every promise: exit code 143, the hook 0, at most one save of a"
            " rank, none torn, and one of the newest step whenever the window was long enough",
            f"{len(asked)} were deleted while they trained: {sum(bool(left.files) for left in fitting)} of"
            f" {len(fitting)} saves that were shorter than the window came through",
            ", ".join(f"{hook.value}: {ways[hook]}" for hook in Hook),
            *(
                [f"{never} were killed before the launcher had come up: this machine is too busy"]
                if never
                else []
            ),
            f"deletion to the end: median {median(left.took_s for _, left in done):.1f} s",
        )
    )


if __name__ == "__main__":
    sys.exit(main())
