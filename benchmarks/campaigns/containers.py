"""``make soak-containers``: faultrun as PID 1 of containers of podman, whose root is this machine's own.

It wants root, ``podman`` and ``runc``; without them it says what is missing, and ends with 0. Each row starts
two workers, does one thing to them, and looks at the exit code and at what was said. Ends with 1 if one was
not kept.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.campaigns.slurm import TRAINS

_PROGRAMS = ("podman", "runc", "unshare")
_ROOT = Path("/run/soak-containers")
_ENOSYS = 38
_EATS = (
    TRAINS
    + """
    if at == 30 and os.environ["RANK"] == "1" and not os.path.exists(ate := sys.argv[2] + ".ate"):
        open(ate, "w").close()
        much = [bytes(1 << 28).replace(b"\\0", b"x") for _ in range(20)]
"""
)


@dataclass(frozen=True, slots=True)
class Row:
    """One container: podman's ``options``, words ``before`` its command, what is done, what must follow."""

    name: str
    does: "Callable[[Container], object]"
    options: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    code: int = 143
    says: str = "saved step"
    script: str = TRAINS
    begins: str = "every rank has done a step"


class Container:
    """One that runs, with its files in ``folder``."""

    def __init__(self, row: Row, folder: Path) -> None:
        self._folder, self._podman = folder, ["podman", "--cgroup-manager=cgroupfs", "--storage-driver=vfs"]
        self._podman += [f"--root={folder / 'storage'}", f"--runroot={folder / 'run'}"]
        (folder / "train.py").write_text(row.script)
        (folder / "seccomp.json").write_text(_without_pidfds())
        limits = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096", "--network=host", "--runtime=runc")
        volumes = [
            f"--volume={one}:{one}" for one in (folder, Path(sys.prefix).parent, Path(__file__).parents[2])
        ]
        environ = [f"--env={name}={os.environ.get(name, '')}" for name in ("PATH", "PYTHONPATH")]
        options = [one.format(folder=folder) for one in row.options]
        training = [
            *row.before,
            sys.executable,
            "-m",
            "faultrun",
            "--worker_num=2",
            f"--log_dir={folder}/log",
        ]
        training += [f"--checkpoint_dir={folder}/ckpt", f"{folder}/train.py", "0.5", f"{folder}/ckpt"]
        words = [*self._podman, "run", "--name=soak", *limits, *volumes, *environ, *options]
        with (folder / "out.txt").open("w") as log:
            self._process = subprocess.Popen(
                [*words, "--rootfs", _ROOT, *training], stdout=log, stderr=log, cwd=folder
            )

    @property
    def output(self) -> str:
        """What it has printed."""
        return (self._folder / "out.txt").read_text(errors="replace")

    def waits(self, what: str, within_s: float = 90) -> None:
        """AssertionError where it is not said in time."""
        until_s = time.monotonic() + within_s
        while what not in self.output:
            assert time.monotonic() < until_s and self._process.poll() is None, f"{what!r} was not said"
            time.sleep(0.2)

    def podman(self, *words: str) -> int:
        """A command of podman's about it; its exit code."""
        return subprocess.run(
            [*self._podman, *words], capture_output=True, timeout=120, check=False
        ).returncode

    def stop(self) -> None:
        """As docker and podman stop it by default."""
        self.podman("stop", "-t", "10", "soak")

    def prestop(self) -> None:
        """The preStop hook, run in the container."""
        code = self.podman(
            "exec", "soak", sys.executable, "-m", "faultrun", "prestop", f"--log_dir={self._folder}/log"
        )
        assert code == 0, f"the hook ended with {code}"

    def ends(self) -> int | None:
        """Its exit code; None where podman does not tell of its end."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(90)
        self._process.kill()
        return None


def _recovers(one: Container) -> None:
    one.waits("training again")
    one.stop()


def _without_pidfds() -> str:
    refused = {"names": ["pidfd_open"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS}
    return json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [refused]})


ROWS = (
    Row("PID 1, stop -t 10", Container.stop),
    Row("prestop by exec", Container.prestop),
    Row("not root", Container.stop, before=("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups")),
    Row(
        "read-only, no capabilities",
        Container.stop,
        ("--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL"),
    ),
    Row("a limit of processes", Container.stop, ("--pids-limit=100",)),
    Row(
        "a limit of memory",
        _recovers,
        ("--memory=2g", "--memory-swap=2g"),
        says="out of memory",
        script=_EATS,
    ),
    Row(
        "seccomp without pidfd_open",
        lambda _: None,
        ("--security-opt=seccomp={folder}/seccomp.json",),
        code=69,
        says="a seccomp profile that allows pidfd_open",
        begins="workers cannot be watched here",
    ),
)


def main(wanted: str = "") -> int:
    """Run the rows whose name has ``wanted``; the exit code says whether all were kept."""
    lacks = [one for one in _PROGRAMS if shutil.which(one) is None] + ["root"] * bool(os.getuid())
    if lacks:
        print(f"soak-containers is skipped: there is no {', '.join(lacks)} (apt-get install podman runc)")
        return 0
    _ROOT.mkdir(exist_ok=True)
    subprocess.run(["mount", "--bind", "/", _ROOT], check=True)
    failed = 0
    for row in (one for one in ROWS if wanted in one.name):
        if row.before and not all(
            folder.stat().st_mode & 1 for folder in Path(sys.executable).resolve().parents
        ):
            print(f"| {row.name} | skipped: only root may run {Path(sys.executable).resolve()} |")
            continue
        with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as scratch:
            Path(scratch).chmod(0o777)
            one, why, code = Container(row, Path(scratch)), "", None
            try:
                one.waits(row.begins)
                row.does(one)
                code = one.ends()
                assert code == row.code, f"exit code {code}"
                assert row.says in one.output, f"{row.says!r} was not said"
            except AssertionError as error:
                failed, why = failed + 1, str(error)
                one.ends()
            print(f"| {row.name} | {code} | {why or 'kept'} |", flush=True)
            if why:
                print(one.output[-3000:])
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
