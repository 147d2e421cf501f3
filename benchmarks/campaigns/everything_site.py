"""Where a run takes place: one host, or three and a spare, and an etcd of three."""

import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.campaigns.everything_judge import Cost
from benchmarks.campaigns.everything_plan import HANG_S, LEASE_S, MEMBERS, NODE_WAIT_S, SEATS, Session, Way
from benchmarks.campaigns.everything_presets import REJOIN_S
from benchmarks.campaigns.stage import Node, Stage
from benchmarks.harness.journal import grown, parsed
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


class Site(Stage):
    """One run."""

    def __init__(self, session: Session, folder: Path, net: Network) -> None:
        several = session.setting.nodes > 1
        names = NODES[session.setting.way] if several else ("a",)
        disks = {f"logs/{one}": _LOG_MIB for one in names} | {"ckpt": _DISK_MIB}
        members = MEMBERS if several else ()
        super().__init__(folder, net, names, members, disks | {f"etcd/{one}": _STORE_MIB for one in members})
        self.session = session
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
            whole, done = grown(path, done)
            fresh = [line for text in whole.splitlines() if (line := parsed(text)) is not None]
            self._journals[node.name] = done, [*lines, *fresh]  # what is torn is judged at the end
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
            *("--backoff=10ms..50ms", "--max_restarts=1000", "--leave_running=none"),
            f"--checkpoint_dir={self.folder / 'ckpt'}",
            f"--log_dir={self.folder / 'logs' / node.name}",
        ]
        if setting.sdk and not setting.small:
            options.append(f"--hang_timeout={HANG_S}s")
        if setting.exact:
            options.append(f"--rejoin_timeout={REJOIN_S}s")
        if way is Way.TRAINS_ON:
            options += ["--while_missing=train", f"--rejoin_timeout={REJOIN_S}s"]
        elif way is not Way.STAYS:
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
