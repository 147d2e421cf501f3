"""A crash at any point leaves the old file or the new one, and what comes next puts everything right."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from faultrun.configs.apply import apply
from faultrun.configs.files import LOCAL, Disk
from faultrun.configs.originals import restore
from faultrun.model.edit import Setting
from support.places import ROOT

OLD = b'# a\npre_trained: ""  # b\nhas_trained_epoch: 0\n'
NEW = b'# a\npre_trained: "/ckpt/x"  # b\nhas_trained_epoch: 3\n'
LAUNCHER = ROOT / "launcher"


class Dying:
    """A disk whose user is killed at its n-th call: before it, half way through writing, or right after."""

    def __init__(self, at: int, when: str) -> None:
        self.calls, self._at, self._when = 0, at, when

    def __getattr__(self, name: str) -> Callable[..., object]:
        real = getattr(LOCAL, name)

        def call(*args: object) -> object:
            self.calls += 1
            if self.calls != self._at:
                return real(*args)
            if self._when == "half way" and name == "write":
                descriptor, data = cast("tuple[int, bytes]", args)
                os.write(descriptor, data[: len(data) // 2])
            if self._when == "after":
                real(*args)
            os.kill(os.getpid(), signal.SIGKILL)
            return None

        return call


@pytest.fixture
def ram(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a killed writer leaves the same there, syncing is free."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(dir=shared))
    yield folder
    shutil.rmtree(folder)


def settings(file: Path) -> list[Setting]:
    return [
        Setting(file=str(file), key="pre_trained", value="/ckpt/x"),
        Setting(file=str(file), key="has_trained_epoch", value=3),
    ]


def killed(at: int, when: str, act: Callable[..., object]) -> int:
    """Do ``act`` with such a disk in a fork; how many calls it made, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        disk = Dying(at, when)
        try:
            act(disk=cast("Disk", disk))
            os._exit(disk.calls)
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def applying(folder: Path) -> Callable[..., object]:
    return partial(apply, settings(folder / "c.yaml"), originals=folder / "log" / "original")


def restoring(folder: Path) -> Callable[..., object]:
    return partial(restore, folder / "log" / "original")


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "c.yaml").write_bytes(OLD)
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def check_all_is_put_right(folder: Path) -> None:
    """The next edit and the way back work, and no debris of the dead writer stays beside the file."""
    file, originals = folder / "c.yaml", folder / "log" / "original"
    apply(settings(file), originals=originals)
    assert file.read_bytes() == NEW
    assert names_in(folder) == [".c.yaml.faultrun.before", "c.yaml", "log"]
    assert names_in(originals) == ["001-c.yaml", "index.json"]
    restore(originals)
    assert file.read_bytes() == OLD
    assert names_in(folder) == ["c.yaml", "log"]


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "half way", "after"])
def test_an_edit_killed_at_any_call_leaves_the_old_file_or_the_new(ram: Path, when: str) -> None:
    calls = killed(0, when, applying(fresh(ram / "whole")))
    assert calls > 20
    seen = set()
    for at in range(1, calls + 1):
        folder = fresh(ram / "run")
        assert killed(at, when, applying(folder)) == -signal.SIGKILL
        standing = (folder / "c.yaml").read_bytes()
        assert standing in (OLD, NEW), f"call {at}"
        seen.add(standing)
        if standing == NEW:
            assert (folder / "log" / "original" / "001-c.yaml").read_bytes() == OLD
        check_all_is_put_right(folder)
    assert seen == {OLD, NEW}


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "half way", "after"])
def test_a_restore_killed_at_any_call_leaves_the_old_file_or_the_new(ram: Path, when: str) -> None:
    def rewritten() -> Path:
        folder = fresh(ram / "run")
        applying(folder)()
        return folder

    calls = killed(0, when, restoring(rewritten()))
    assert calls > 10
    for at in range(1, calls + 1):
        folder = rewritten()
        assert killed(at, when, restoring(folder)) == -signal.SIGKILL
        assert (folder / "c.yaml").read_bytes() in (OLD, NEW)
        restoring(folder)()
        assert (folder / "c.yaml").read_bytes() == OLD
        check_all_is_put_right(folder)


EDITOR = """
import os, sys
from pathlib import Path
from faultrun.configs.apply import apply
from faultrun.configs.editors.registry import edit
from faultrun.model.edit import Setting

file, originals = Path(sys.argv[1]), Path(sys.argv[2])
edit("c.yaml", b"a: 1", "a", 2)
print("ready", flush=True)
Path("/the-edit-begins-here").exists()
for number in range(int(sys.argv[3])):
    apply([Setting(file=str(file), key="pre_trained", value=f"/ckpt/{number}")], originals=originals)
    print(number, flush=True)
"""


def editor(folder: Path, times: int, *before: str) -> list[str]:
    script = folder / "editor.py"
    script.write_text(textwrap.dedent(EDITOR))
    words = [
        sys.executable,
        str(script),
        str(folder / "c.yaml"),
        str(folder / "log" / "original"),
        str(times),
    ]
    return [*before, *words]


@pytest.mark.slow
def test_sigkill_at_random_moments_never_leaves_a_mixture(tmp_path: Path) -> None:
    chance = random.Random(7)
    folder = fresh(tmp_path / "run")
    for _ in range(12):
        with subprocess.Popen(
            editor(folder, 1_000_000),
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(LAUNCHER)},
        ) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(1, 12)):
                assert process.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=chance.random() * 0.02)
            process.kill()
        text = (folder / "c.yaml").read_text()
        first, second, third = text.splitlines()
        assert first == "# a"
        assert second.startswith('pre_trained: "')
        assert second.endswith('"  # b')
        assert third == "has_trained_epoch: 0"
        json.loads((folder / "log" / "original" / "index.json").read_text())
    (folder / "editor.py").unlink()
    check_all_is_put_right(folder)


def traced(folder: Path, *options: str) -> tuple[int, list[str]]:
    """Run one edit under strace; its exit status, and the system calls from the beginning of the edit on."""
    log = folder / "trace"
    process = subprocess.run(
        editor(folder, 1, "strace", "-f", "-o", str(log), *options),
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(LAUNCHER), "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=60,
        check=False,
    )
    lines = [line.partition(" ")[2].lstrip() for line in log.read_text().splitlines()]
    log.unlink()
    return process.returncode, lines


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace to kill at a system call")
def test_sigkill_at_every_system_call_that_changes_a_file_leaves_the_old_file_or_the_new(ram: Path) -> None:
    new = OLD.replace(b'""', b'"/ckpt/0"')
    calls = "openat,write,close,fchmod,fchown,fsync,rename,renameat,renameat2,unlink,unlinkat,mkdir,flock"
    status, lines = traced(fresh(ram / "count"), "-e", f"trace=stat,newfstatat,statx,{calls}")
    if status != 0:
        pytest.skip("this machine allows no tracing")
    begin = next(n for n, line in enumerate(lines) if "the-edit-begins-here" in line)
    names = [line.partition("(")[0] for line in lines]
    killed = 0
    for name in [name for name in calls.split(",") if name in names[begin:]]:
        for nth in range(names[:begin].count(name) + 1, names.count(name) + 1):
            folder = fresh(ram / "run")
            status, _ = traced(
                folder, "-e", f"trace={name}", "-e", f"inject={name}:signal=SIGKILL:when={nth}"
            )
            killed += status in {-signal.SIGKILL, 128 + signal.SIGKILL}
            assert (folder / "c.yaml").read_bytes() in (OLD, new), f"{name} {nth}"
            (folder / "editor.py").unlink()
            check_all_is_put_right(folder)
    assert killed > 40
