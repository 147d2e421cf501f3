"""What a run leaves to be seen: journals and cards for the judges, processes, and a copy for people."""

import shutil
import time
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from benchmarks.campaigns.judge_nodes import cards_differ, journals_disagree, read_journal
from benchmarks.campaigns.promises import Broken
from benchmarks.campaigns.stage import Stage
from benchmarks.jobs.everything_notes import boot_s

_GONE_S, _LOOK_S = 5.0, 0.02
_NOT_KEPT = ("etcd", "ballast", "*.rank", "*.child", "*.sock", "faultrun_chaos_*")


def at_the_end(stage: Stage, filled: Collection[str]) -> Broken:
    """What only the whole run shows: journals, cards, and processes that are left.

    ``filled`` are nodes whose disk was full at times: what they wrote then may be cut.
    """
    wrong = Broken()
    journals, cards = {}, defaultdict[str, dict[str, str]](dict)
    for node in stage.nodes.values():
        for card in [] if node.name in filled else stage.log_dir(node).glob("incident_*.txt"):
            cards[card.name][node.name] = card.read_text(errors="replace")
        path = stage.log_dir(node) / "journal.jsonl"
        journals[node.name], torn = read_journal(path.read_bytes() if path.exists() else b"")
        wrong.journals += [f"{node.name}: {words}" for words in torn]
    wrong.journals += journals_disagree(journals)
    wrong.cards += cards_differ(cards)
    if stage.ended and not late(stage):
        until_s = boot_s() + _GONE_S
        while _left(stage) and boot_s() < until_s:
            time.sleep(_LOOK_S)
        wrong.orphans += [f"{words} after the end" for words in _left(stage)]
    return wrong


def late(stage: Stage) -> list[str]:
    """Supervisors that run although the run has ended."""
    return [node.name for node in stage.nodes.values() if node.runs] if stage.ended else []


def named(pid: int) -> str:
    """The first words of its command."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        return f"process {pid} ({' '.join(Path(word).name for word in words[:4])})"
    return f"process {pid}"


def keep(stage: Stage, began_s: float, to: Path) -> None:
    """Copy what there is to see of a run that began then (CLOCK_BOOTTIME), with what was said and when."""
    left_out = shutil.ignore_patterns(*_NOT_KEPT)
    shutil.copytree(stage.folder, to, ignore=left_out, dirs_exist_ok=True, symlinks=True)
    for node in stage.nodes.values():
        lines = [f"{at_s - began_s:9.3f} {line}" for at_s, line in node.said]
        (to / f"{node.name}.said").write_text("\n".join(lines))


def _left(stage: Stage) -> list[str]:
    hosts = [stage.net[name] for name in stage.nodes]
    return [f"{named(pid)} on {host.name}" for host in hosts for pid in host.pids]
