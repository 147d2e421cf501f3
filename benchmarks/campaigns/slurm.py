"""``make soak-slurm``: a real SLURM of four hosts on one machine, and what it does to a rendered job.

It wants root, network namespaces and the programs of ``slurm-wlm`` and ``munge``; without them it says what
is missing, and ends with 0. SLURM's state lies in a scratch folder; ``/etc/hosts`` is covered in a mount
namespace of its own. A row is kept if the job is back in the queue (or ended, where the user asked for that)
and its next life begins where the last one saved. Ends with 1 if a row was not.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.netns import refused
from support.nodes.hosts import Host, Network, network

_PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol", "scancel", "srun", "unshare")
_NODES = ("n0", "n1", "n2", "n3")
_PAGE = Path(__file__).parents[1] / "results" / "slurm.md"
TRAINS = """
import os, sys, time
from faultrun import sdk

at = 0


def save(path):
    time.sleep(float(sys.argv[1]))
    with open(path, "w") as file:
        file.write(str(at))


point = sdk.resume()
sdk.start(save=save, directory=sys.argv[2], name="s.txt")
print("begins at step", point.step + 1 if point else 1, flush=True)
for at in range(point.step + 1 if point else 1, 10**6):
    time.sleep(0.1)
    sdk.step(at)
    print("step", at, flush=True)
"""
_CONF = """
ClusterName=soak
SlurmctldHost=desk({desk})
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdTimeout=30
KillWait=30
SchedulerParameters=sched_interval=3,bf_interval=5
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
StateSaveLocation={work}/state
SlurmdSpoolDir={work}/spool.%n
SlurmctldPidFile={work}/slurmctld.pid
SlurmdPidFile={work}/slurmd.%n.pid
MpiDefault=none
{nodes}
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=40 State=UP
PartitionName=abrupt Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=0 State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF State=UP
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that happens to a job, and whether it runs again. ``edited``: what a user made of what."""

    name: str
    does: "Callable[[Job], object]"
    again: bool = True
    values: tuple[str, ...] = ()
    edited: tuple[str, str] = ("", "")


class Job:
    """One rendered job, submitted."""

    def __init__(self, desk: Host, hosts: Network, folder: Path, row: Row) -> None:
        self._desk, self.hosts, self.folder = desk, hosts, folder
        folder.mkdir()
        (folder / "train.py").write_text(TRAINS)
        given = {"name": "soak", "gres": "", "devices": "2", "time_limit": "00:10:00", "warning": "60"}
        given |= {"script": str(folder / "train.py"), "checkpoint_dir": str(folder / "ckpt")}
        given |= {"log_dir": str(folder / "log"), "output": str(folder / "out.txt")}
        given |= dict(one.partition("=")[::2] for one in row.values)
        words = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
        words += ["--set", "args=0.5", "--set", f"args={folder / 'ckpt'}"]
        text = self.tells("faultrun", "render", "slurm", *words)
        assert row.edited[0] in text
        (folder / "job.sbatch").write_text(text.replace(*row.edited) if row.edited[0] else text)
        (self.number,) = re.findall(r"\d+", self.tells("sbatch", str(folder / "job.sbatch")))

    def tells(self, *words: str) -> str:
        """What a command on the desk prints."""
        with self._desk.inside():
            done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    @property
    def output(self) -> str:
        """What the job has printed, in all its lives, and its workers."""
        logs = sorted(
            self.folder.glob("log/**/incarnation_*/worker_0.log"), key=lambda one: one.stat().st_mtime
        )
        return "\n".join(
            one.read_text(errors="replace") for one in (self.folder / "out.txt", *logs) if one.exists()
        )

    def value(self, name: str) -> str:
        """A field of ``scontrol show job``."""
        found = re.search(rf"\b{name}=(\S*)", self.tells("scontrol", "show", "job", self.number))
        return found[1] if found else ""

    def waits(self, what: str, seen: Callable[[], object], within_s: float) -> None:
        """AssertionError where it is not seen in time."""
        until_s = time.monotonic() + within_s
        while not seen():
            assert time.monotonic() < until_s, f"{what} was not seen in {within_s:g} s"
            time.sleep(0.5)

    def kill_rank(self) -> None:
        """End rank 1, as an operator would."""
        mine = [one for one in _processes() if str(self.folder / "train.py") in one[1] and "RANK=1" in one[2]]
        os.kill(max(mine)[0], signal.SIGKILL)


def _processes() -> Iterator[tuple[int, list[str], list[str]]]:
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            words, environ = (
                (entry / one).read_bytes().decode().split("\0") for one in ("cmdline", "environ")
            )
            yield int(entry.name), words, environ


def _power_off(host: Host) -> None:
    """End everything in the namespace of ``host``, with SLURM's own daemon."""
    with host.inside():
        own = Path("/proc/thread-self/ns/net").readlink()
    assert own != Path("/proc/self/ns/net").readlink(), "the host has no namespace of its own"
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if (entry / "ns/net").readlink() == own and int(entry.name) != os.getpid():
                os.kill(int(entry.name), signal.SIGKILL)


def _preempted(job: Job) -> None:
    job.tells("sbatch", "--partition=high", f"--nodes={len(_NODES)}", "--exclusive", "--wrap=sleep 20")


def _first_lost(job: Job) -> None:
    """SLURM keeps such a job, without the script that ran there, until its time is over."""
    _power_off(job.hosts["n0"])
    job.waits("its loss", lambda: "n0" not in job.value("NodeList").replace("n[0", "n0"), 120)
    job.tells("scontrol", "requeue", job.number)


ROWS = (
    Row("a rank is killed", Job.kill_rank),
    Row("scontrol requeue", lambda job: job.tells("scontrol", "requeue", job.number)),
    Row("scancel", lambda job: job.tells("scancel", job.number), again=False),
    Row("preempted, GraceTime 40", _preempted, values=("partition=low",)),
    Row("preempted, GraceTime 0", _preempted, values=("partition=abrupt",)),
    Row("the time limit", lambda _: None, values=("time_limit=00:02:00",)),
    Row("--signal=USR1@60", lambda _: None, values=("time_limit=00:02:00",), edited=("=TERM@60", "=USR1@60")),
    Row("--signal=B:TERM@60", lambda _: None, values=("time_limit=00:02:00",), edited=("=TERM@", "=B:TERM@")),
    Row("--signal=B:USR1@60", lambda _: None, values=("time_limit=00:02:00",), edited=("=TERM@", "=B:USR1@")),
    Row("a node is lost", lambda job: _power_off(job.hosts["n1"]), values=("nodes=2", "spares=1")),
    Row("the first node is lost, requeued by hand", _first_lost, values=("nodes=2", "spares=1")),
)


def main(wanted: str = "") -> int:
    """Run the rows whose name has ``wanted``; the exit code says whether all were kept."""
    lacks = [one for one in _PROGRAMS if shutil.which(one) is None] + ["root"] * bool(os.getuid())
    lacks += filter(None, [refused()])
    if lacks:
        print(f"soak-slurm is skipped: there is no {', '.join(lacks)} (apt-get install slurm-wlm munge)")
        return 0
    failed, lines = 0, ["| what happens | restarts | next life | |", "|---|---|---|---|"]
    for row in (one for one in ROWS if wanted in one.name):
        with tempfile.TemporaryDirectory(prefix="soak-slurm-") as scratch, _cluster(Path(scratch)) as hosts:
            work = Path(scratch)
            work.chmod(0o755)
            job = Job(hosts.desk, hosts, work / "job", row)
            why = ""
            try:
                _run(row, job)
            except AssertionError as error:
                failed, why = failed + 1, str(error) or "broken"
            begins = re.findall(r"begins at step (\d+)", job.output)
            lines.append(f"| {row.name} | {job.value('Restarts')} | {' '.join(begins)} | {why or 'kept'} |")
            print(lines[-1], flush=True)
            if why:
                print(job.output[-4000:], *(one.read_text()[-2000:] for one in work.glob("*.log")), sep="\n")
    if not wanted:
        _PAGE.write_text("# Jobs in a real SLURM\n\n`make soak-slurm`\n\n" + "\n".join(lines) + "\n")
    return int(failed > 0)


def _run(row: Row, job: Job) -> None:
    job.waits("step 20", lambda: "\nstep 20\n" in job.output, 120)
    row.does(job)
    if not row.again:
        job.waits("the save", lambda: "saved step" in job.output, 60)
        job.waits("its end", lambda: job.value("JobState") == "CANCELLED", 60)
        return
    job.waits("another life", lambda: job.output.count("begins at step") > 1, 400)
    files = " ".join(one.name for one in (job.folder / "ckpt").rglob("*"))
    saved = [int(step) for step in re.findall(r"(?:saved step |-step_)(\d+)", job.output + files)]
    (begins, *_) = re.findall(r"begins at step (\d+)", job.output)[1:]
    assert int(begins) - 1 in saved, f"it begins at {begins} and had saved {saved}"
    job.tells("scancel", job.number)


@contextmanager
def _cluster(work: Path) -> Iterator[Network]:
    (work / "state").mkdir()
    with network(*_NODES) as hosts:
        named = {"desk": hosts.desk, **hosts.hosts}
        addresses = "".join(f"{host.address} {name}\n" for name, host in named.items())
        (work / "hosts").write_text(f"127.0.0.1 localhost\n{addresses}")
        subprocess.run(["mount", "--bind", work / "hosts", "/etc/hosts"], check=True)
        each = "CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=8000 State=UNKNOWN"
        nodes = "\n".join(f"NodeName={name} NodeAddr={hosts[name].address} {each}" for name in _NODES)
        conf = work / "slurm.conf"
        conf.write_text(_CONF.format(desk=hosts.desk.address, work=work, nodes=nodes))
        os.environ["SLURM_CONF"] = str(conf)
        Path("/run/munge").mkdir(exist_ok=True)
        shutil.chown("/run/munge", "munge", "munge")
        munged = ["runuser", "-u", "munge", "--", "munged", "--force", "--foreground"]
        hosts.desk.start(munged, log=work / "munged.log")
        hosts.desk.start(["slurmctld", "-D", "-f", str(conf)], log=work / "slurmctld.log")
        for name in _NODES:
            (work / f"spool.{name}").mkdir()
            hosts[name].start(["slurmd", "-D", "-f", str(conf)], log=work / f"{name}.log")
        try:
            _wait_until_idle(hosts.desk)
            yield hosts
        finally:
            for host in (*hosts.hosts.values(), hosts.desk):
                _power_off(host)
            subprocess.run(["umount", "/etc/hosts"], check=False)


def _wait_until_idle(desk: Host) -> None:
    for _ in range(120):
        with desk.inside():
            told = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, check=False)
        if set(told.stdout.split()) == {"idle"}:
            return
        time.sleep(0.5)
    raise AssertionError(f"SLURM did not come up: {told.stdout}{told.stderr}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
