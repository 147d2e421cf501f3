"""Where a run takes place: one host, or three and a spare, and an etcd of three."""

import bisect
import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.campaigns.everything_judge import Cost
from benchmarks.campaigns.everything_plan import HANG_S, LEASE_S, MEMBERS, NODE_WAIT_S, SEATS, Session, Way
from benchmarks.campaigns.everything_presets import REJOIN_S
from benchmarks.campaigns.ledgers import Census, Ledgers, Life, Told
from benchmarks.campaigns.stage import Node, Stage
from benchmarks.harness.launched import ROOT
from benchmarks.harness.procfs import rss_mib
from benchmarks.jobs.everything_notes import CONFIGURED, HANDED
from support.nodes.hosts import Network

STEP_S = 0.05
NODES = dict.fromkeys(Way, ("a", "b", "c", "d")) | {Way.SHRINKS: ("a", "b", "c")}
"""The last one is a spare; where nodes can be left out there is none."""

_DISK_MIB, _STORE_MIB, _LOG_MIB = 32, 256, 32
_JOBS = ROOT / "benchmarks" / "jobs"
_CONFIG = "# a training's configuration\npre_trained: ''  # where to go on\n"
_STUCK = "stuck in a broken process group"


class Steps(Ledgers):
    """All that ranks told; steps are found without a look at every line."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._firsts: dict[int, dict[int, list[float]]] = {}
        self._worlds: dict[int, int] = {}
        self.struck: list[Told] = []

    def read(self) -> list[Told]:
        """Return what is new."""
        fresh = super().read()
        for one in sorted(fresh, key=lambda one: one.at_s):
            if one.what == "step":
                self._firsts.setdefault(one.life, {}).setdefault(one.rank, []).append(one.at_s)
            if one.what == "struck":
                self.struck.append(one)
            if one.what == "begin":
                self._worlds[one.life] = int(one.path)
        return fresh

    @property
    def has_saved(self) -> bool:
        """Whether all ranks train, behind a save of each that makes any."""
        saves = {one.rank: one for one in self.lines if one.what == "saved"}
        return bool(saves) and self.trains_since(max(one.at_s for one in saves.values())) is not None

    def newest_life(self) -> int:
        """The newest incarnation of which a rank has begun; -1: none."""
        return max(self._worlds, default=-1)

    def world(self, life: int) -> int:
        """How many ranks it has; of one that never began, as many as the one before."""
        return next((self._worlds[one] for one in range(life, -1, -1) if one in self._worlds), 0)

    def trains_since(self, at_s: float, ranks: int = 0) -> float | None:
        """When every rank of the newest incarnation had done a step after ``at_s``; None: not yet."""
        return self.trained_in(self.newest_life(), at_s, ranks)

    def trained_in(self, life: int, at_s: float, ranks: int = 0) -> float | None:
        """The same of any incarnation."""
        own = self._firsts.get(life, {})
        places = {rank: bisect.bisect_right(moments, at_s) for rank, moments in own.items()}
        firsts = [own[rank][place] for rank, place in places.items() if place < len(own[rank])]
        return max(firsts) if firsts and len(firsts) == (ranks or self.world(life)) else None


class Ranks(Census):
    """Whoever has a rank: survivors of an incarnation have theirs in the next ones."""

    def __init__(self, folder: Path, steps: Steps) -> None:
        self._steps = steps
        super().__init__(folder)

    def newest(self) -> list[Life]:
        """The last process that came for each rank of the newest incarnation."""
        last: dict[int, Life] = {}
        for one in sorted(self.lives, key=lambda one: (one.life, one.born_s)):
            if one.is_rank:
                last[one.rank] = one
        world = self._steps.world(self._steps.newest_life())
        return [one for rank, one in sorted(last.items()) if rank < world or not world]


class Site(Stage):
    """One run."""

    def __init__(self, session: Session, folder: Path, net: Network) -> None:
        several = session.setting.nodes > 1
        names = NODES[session.setting.way] if several else ("a",)
        disks = {f"logs/{one}": _LOG_MIB for one in names} | {"ckpt": _DISK_MIB}
        members = MEMBERS if several else ()
        super().__init__(folder, net, names, members, disks | {f"etcd/{one}": _STORE_MIB for one in members})
        self.session = session
        self.census.close()
        self.steps = Steps(folder / "told")
        self.ledgers = self.steps
        self.census = Ranks(folder / "told", self.steps)
        (folder / "orders").mkdir()
        if session.setting.way is Way.CONFIG:
            (folder / "config.yaml").write_text(_CONFIG, encoding="utf-8")
        self._journals: dict[str, tuple[int, list[dict[str, Any]]]] = {}

    def start(self, node: Node) -> None:
        """The same command on each host."""
        self.run(node, (sys.executable, "-m", "faultrun", *self._options(node), *self.job()))

    def job(self) -> tuple[str, ...]:
        """The script and its words."""
        setting = self.session.setting
        words = ("sdk" if setting.sdk else "bare", str(self.folder), str(STEP_S))
        if setting.code == "mindspore":
            return (str(_JOBS / "everything_mindspore.py"), *words)
        if setting.small:
            light = () if setting.code == "gloo" else ("-S",)
            return (sys.executable, *light, str(_JOBS / "everything_plain.py"), setting.code, *words)
        job = "everything_exact.py" if setting.exact else "everything_torch.py"
        config = (f"{CONFIGURED}{self.folder / 'config.yaml'}",) if setting.way is Way.CONFIG else ()
        return (str(_JOBS / job), setting.code, *words, *config)

    def log_dir(self, node: Node) -> Path:
        """Where its journal is."""
        return super().log_dir(node) if len(self.nodes) > 1 else self.folder / "logs" / node.name

    def journal(self) -> list[dict[str, Any]]:
        """The lines of all journals so far, node by node."""
        for node in self.nodes.values():
            path = self.log_dir(node) / "journal.jsonl"
            done, lines = self._journals.get(node.name, (0, []))
            if path.exists():
                with path.open("rb") as file:
                    file.seek(done)
                    text = file.read()
                whole = text[: text.rfind(b"\n") + 1]
                self._journals[node.name] = done + len(whole), [*lines, *_read(whole.splitlines())]
        return [line for _, lines in self._journals.values() for line in lines]

    def has_standbys(self) -> bool:
        """Whether none of them is on its way; True where there are none."""
        if self.session.setting.way not in (Way.WARM, Way.STAYS):
            return True
        changed = [line for line in self.journal() if line["event"] == "StandbyChanged"]
        newest = {(line["node"], line["rank"]): line["state"] for line in changed}
        begun = len(newest) >= (self.session.setting.ranks if len(self.nodes) == 1 else 1)
        return begun and all(state in ("ready", "parked", "off") for state in newest.values())

    def stuck(self) -> int:
        """How many survivors have ended themselves because no abort freed them."""
        logs = (self.folder / "logs").rglob("worker_*.log")
        return sum(log.read_text(errors="replace").count(_STUCK) for log in logs)

    def cost(self) -> Cost:
        """What the one supervisor holds now."""
        node = next(iter(self.nodes.values()))
        pid = node.process.pid if node.process is not None else os.getpid()
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        own = self.net[node.name].pids
        return Cost(descriptors=descriptors, processes=len(own), rss_mib=rss_mib(pid))

    @property
    def well(self) -> Path:
        """Is there while every device is well."""
        return self.folder / "well"

    def _options(self, node: Node) -> tuple[str, ...]:
        setting, way = self.session.setting, self.session.setting.way
        framework = setting.code if setting.code in ("mindspore", "plain") else "torch"
        standbys = {Way.WARM: setting.ranks, Way.STAYS: 1 if setting.nodes > 1 else setting.ranks}.get(way)
        options = [
            *(f"--framework={framework}", f"--standby={standbys or 'none'}", "--grace=6s"),
            *("--backoff=10ms..50ms", "--max_restarts=1000", f"--checkpoint_dir={self.folder / 'ckpt'}"),
            f"--log_dir={self.folder / 'logs' / node.name}",
        ]
        if setting.sdk and not setting.small:
            options.append(f"--hang_timeout={HANG_S}s")
        if setting.exact:
            options.append(f"--rejoin_timeout={REJOIN_S}s")
        if way is not Way.STAYS:
            options.append("--on_fault=restart")
        if way is Way.CONFIG:
            options.append(f"--rewrite={self.folder / 'config.yaml'}:pre_trained")
        if way is Way.BARE and not setting.small:
            options.append(f"--resume_arg={HANDED}{{checkpoint}}")
        if way is Way.SHRINKS and setting.nodes == 1:
            options += ["--min_worker_num=2", f"--health_check=test -e {self.well}"]
        if way is Way.SHRINKS and setting.nodes > 1:
            options.append("--health_check=true")
        return (*options, *self._meeting(node))

    def _meeting(self, node: Node) -> tuple[str, ...]:
        if self.etcd is None:
            return (f"--worker_num={self.session.setting.ranks}",)
        size = (f"--nnodes={SEATS}", f"--node_wait={NODE_WAIT_S:g}s")
        if self.session.setting.way is Way.SHRINKS:
            size = (f"--nnodes={SEATS - 1}:{SEATS}", f"--node_wait={LEASE_S}s")
        return (
            *(*size, f"--nproc-per-node={self.session.setting.ranks // SEATS}", "--rdzv-backend=etcd"),
            *(f"--rdzv-endpoint={self.etcd.endpoints}", f"--rdzv-id=soak{self.session.number}"),
            *(f"--local-addr={self.net[node.name].address}", f"--node_name={node.name}"),
            f"--lease_ttl={LEASE_S}",
        )


def _read(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """What is cut or torn is judged at the end."""
    return [line for line in map(_line, lines) if line is not None]


def _line(text: bytes) -> dict[str, Any] | None:
    with suppress(ValueError):
        line: dict[str, Any] = json.loads(text)
        return line
    return None
