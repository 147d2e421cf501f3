"""``python -m benchmarks.campaigns.pods --pods 100 --early 5``: pods with faultrun as PID 1 are deleted.

``--pods``: preStop hook, SIGTERM and SIGKILL on a kubelet's schedule, at a
moment drawn by chance. ``--early``: so many SIGTERMs for each of 0, 1, 5, 20
and 100 ms after ``exec``. Needs PID namespaces and no cluster. Ends with 1 when
a promise was broken; what such a pod left is kept, and the table says where.
"""

import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.campaigns import engine
from benchmarks.campaigns.engine import Campaign, Row, of_case, of_seen
from benchmarks.campaigns.pods_run import EARLY_MS, FAULTRUN, Deletion, Hook, Left, broken, draw, run
from benchmarks.harness import pod

_STOPPED = 143
_PATIENCE_S = 60.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for."""
    parser = engine.options("pods", __doc__, beside=4)
    parser.add_argument("--pods", type=int, default=100, help="pods that are deleted [100]")
    parser.add_argument("--early", type=int, default=5, help="signals for each of the early moments [5]")
    asked = parser.parse_args(argv)
    if not pod.can_be_made():
        return engine.impossible("no PID namespaces, or no `env --block-signal` (coreutils 8.31)")
    early_ones = _early(asked.early)
    rows = CAMPAIGN.carry_out(draw(asked.pods, asked.seed), asked) if asked.pods else []
    return engine.exit_code(rows, also=early_ones)


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


def summary(rows: Sequence[Row]) -> list[str]:
    """What the deletions proved."""
    asked = [row for row in rows if (row["newest"] or -1) >= 0]
    fitting = [row for row in asked if row["save_s"] < row["granted_s"]]
    never = sum(row["came_up"] is False for row in rows)
    ways = Counter(row["hook"] for row in rows)
    lines = [
        "promised are exit code 143, the hook 0, at most one save of a rank, none torn, and one of the newest"
        " step whenever the window was long enough",
        f"{len(asked)} were deleted while they trained: {sum(bool(row['saved']) for row in fitting)} of"
        f" {len(fitting)} saves that were shorter than the window came through",
        ", ".join(f"{hook.value}: {ways[hook.value]}" for hook in Hook),
        f"deletion to the end: median {median(row['ended_s'] or 0.0 for row in rows):.1f} s",
    ]
    if never:
        lines.append(f"{never} were killed before the launcher had come up: this machine is too busy")
    return lines


CAMPAIGN: Campaign[Deletion, Left] = Campaign(
    name="pods",
    cases="pods",
    run=run,
    judge=broken,
    columns={
        "deleted_at": lambda one, _: f"{'exec' if one.starting else 'first step'} +{one.at_s:.2f} s",
        **of_case("hook", "window_s", "save_s"),
        **of_seen("granted_s", "newest", "came_up", "exit_code"),
        "saved": lambda _, left: ", ".join(f"rank {rank} step {step}" for rank, step in left.files),
        "ended_s": lambda _, left: left.took_s,
    },
    summary=summary,
)


if __name__ == "__main__":
    sys.exit(main())
