"""One run over several hosts, with a real etcd: their supervisors, their journals, and what befalls them."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from model.replay import broken_laws
from support.lightly import lightly
from support.nodes.etcd_cluster import EtcdCluster
from support.nodes.hosts import Host, Network, network
from support.runs import FAULTRUN, LIGHT_PYTHON, PRELUDE, Run

LEASE_S = 5
LONG_LEASE = "--lease_ttl=20s"
"""Where no node is lost, a machine that is busy loses none."""
STORE = "store"


@dataclass
class Job:
    """``nodes`` by the names of their hosts; each has a folder of its own below ``logs``.

    ``words`` are more options of all, ``program`` is what the workers run. Each host works in a
    folder of its own below ``folder``: what is given by a relative path is on its own disk.
    """

    network: Network
    etcd: EtcdCluster | None
    folder: Path
    program: tuple[str, ...]
    framework: str
    per_node: int = 1
    words: tuple[str, ...] = ()
    nodes: dict[str, Run] = field(default_factory=dict)

    def start(self, *names: str) -> None:
        """Start the same command on each of these hosts."""
        for name in names:
            self.start_as(name)

    def start_as(
        self, name: str, *words: str, under: tuple[str, ...] = (), environ: Mapping[str, str] | None = None
    ) -> None:
        """Start it on one host with more ``words``, through the command ``under``."""
        self.nodes[name] = self._started(self.network[name], words, under, environ or {})

    def run(self, name: str) -> Run:
        return self.nodes[name]

    def host(self, name: str) -> Host:
        return self.network[name]

    def rank_on(self, name: str, incarnation: int = 0) -> int:
        """The rank that the plan gave to this host."""
        return int(self.nodes[name].event("WorkerStarted", incarnation=incarnation)["rank"])

    def trains(self, *names: str, incarnation: int = 0) -> None:
        """Wait until the ranks of these hosts are in their main loop."""
        for name in names:
            self.nodes[name].trains([self.rank_on(name, incarnation)], incarnation)

    def trains_with_a_spare(self, *names: str, spare: str) -> None:
        """Start these hosts, and the spare once they train."""
        self.start(*names)
        self.trains(*names)
        self.start(spare)
        self.run(spare).event("RunStarted")

    def _meeting(self, host: Host) -> tuple[str, ...]:
        """Where all agree: at an etcd of their own, or at that which the first host serves."""
        if self.etcd is not None:
            return ("--rdzv-backend=etcd", f"--rdzv-endpoint={self.etcd.endpoints}", "--rdzv-id=job42")
        hosts = list(self.network.hosts.values())
        return (
            f"--master_addr={hosts[0].address}",
            "--master_port=29511",
            f"--node_rank={hosts.index(host)}",
        )

    def _started(
        self, host: Host, own_words: tuple[str, ...], under: tuple[str, ...], environ: Mapping[str, str]
    ) -> Run:
        words = (
            "--nnodes=2",
            f"--nproc-per-node={self.per_node}",
            *self._meeting(host),
            f"--local-addr={host.address}",
            f"--node_name={host.name}",
            f"--lease_ttl={LEASE_S}",
            "--grace=5s" if self.framework == "plain" else "--grace=30s",
            f"--log_dir={self.folder / 'logs'}",
            *self.words,
            *own_words,
        )
        options = (f"--framework={self.framework}", *words)
        own = self.folder / host.name
        own.mkdir(exist_ok=True)
        command = (*under, *FAULTRUN, *options, *self.program)
        console = self.folder / f"{host.name}.out"
        light = {} if self.framework == "plain" else lightly()
        variables = {"FAULTRUN_REPORT": "False", **light, **environ}
        process = host.start(command, log=console, environ=variables, cwd=own)
        log_dir = self.folder / "logs" / f"node_{host.name}"
        return Run(pid=process.pid, log_dir=log_dir, console=console, process=process)


@contextmanager
def job(
    folder: Path,
    *names: str,
    script: str = "",
    program: tuple[str, ...] = (),
    served: bool = False,
    framework: str = "plain",
    per_node: int = 1,
    words: tuple[str, ...] = (),
    only_etcd: bool = False,
    members: tuple[str, ...] = (STORE,),
) -> Iterator[Job]:
    """Hosts of these names and of etcd's ``members``, which run; no supervisor yet. Workers run ``script``.

    ``served``: there is no etcd but that of the first host. ``program`` instead of ``script``, ``per_node``
    and ``words`` are as in ``Job``. At the end the journals of all are held to the laws of ``model.laws``;
    ``only_etcd``: nothing but etcd and ranks is taken away.
    """
    python = LIGHT_PYTHON if framework == "plain" else (sys.executable,)
    (folder / "train.py").write_text(PRELUDE + script)
    program = program or (*python, str(folder / "train.py"))
    with network(*names, *(() if served else members)) as net:
        etcd = None if served else EtcdCluster(net, members, folder)
        if etcd is not None:
            etcd.start()
        yield Job(net, etcd, folder, program, framework, per_node, words)
    laws = broken_laws(sorted((folder / "logs").glob("node_*")), only_etcd=only_etcd)
    assert not laws, "\n".join(laws)
