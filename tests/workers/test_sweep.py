"""Finding and ending what escaped, among the real processes of this machine."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from faultrun.files import text_of
from faultrun.workers.sweep import (
    TAG_VARIABLE,
    Strangers,
    carries_tag,
    kill_tagged,
    sweep,
    tag,
    tag_limit,
    tagged,
)
from support.machine.processes import lives, wait_until


@dataclass(slots=True)
class Crowd:
    """Processes with a tag, in limits and environment, and others without."""

    folder: Path
    boot: str = field(default_factory=lambda: os.urandom(8).hex())
    born: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def tagged(self, script: str = "exec sleep 60", boot: str | None = None) -> int:
        return self.any(script, {TAG_VARIABLE: self.boot if boot is None else boot})

    def any(self, script: str, environ: dict[str, str]) -> int:
        process = subprocess.Popen(
            ["/bin/sh", "-c", script],
            env={"PATH": os.environ["PATH"], **environ},
            cwd=self.folder,
            preexec_fn=lambda: tag(environ.get(TAG_VARIABLE, "")),  # noqa: PLW1509
        )
        self.born.append(process)
        return process.pid


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    crowd = Crowd(tmp_path)
    yield crowd
    for process in crowd.born:
        process.kill()
        process.wait()


def test_whoever_carries_the_tag_is_found_and_nobody_else(crowd: Crowd) -> None:
    ours = crowd.tagged()
    others = [
        crowd.tagged(boot=f"{crowd.boot}ff"),
        crowd.tagged(boot=crowd.boot[:-1]),
        crowd.any("exec sleep 60", {f"NOT_{TAG_VARIABLE}": crowd.boot}),
        crowd.any("exec sleep 60", {}),
    ]
    wait_until(lambda: list(tagged(frozenset({crowd.boot}))) == [ours], what="ours, and nobody else")
    assert sweep(frozenset({crowd.boot}), patience_s=5) == (1, ())
    assert [lives(pid) for pid in (ours, *others)] == [False, True, True, True, True]


def test_forks_sessions_and_double_forks_do_not_shake_it_off(crowd: Crowd) -> None:
    crowd.tagged("setsid sh -c 'sleep 60 & sleep 60 & echo up > up; wait' & wait")
    wait_until((crowd.folder / "up").exists)
    found, stragglers = sweep(frozenset({crowd.boot}), patience_s=5)
    assert found >= 4
    assert stragglers == ()
    assert list(tagged(frozenset({crowd.boot}))) == []


def test_one_that_starts_another_whenever_one_dies_is_ended_too(crowd: Crowd) -> None:
    crowd.tagged("while :; do sleep 60 & echo up > up; wait $!; done")
    wait_until((crowd.folder / "up").exists)
    _, stragglers = sweep(frozenset({crowd.boot}), patience_s=5)
    assert stragglers == ()
    assert list(tagged(frozenset({crowd.boot}))) == []


def test_several_boots_are_swept_at_once_and_no_boot_means_nobody(crowd: Crowd) -> None:
    first, second = crowd.tagged(), crowd.tagged(boot="another")
    assert sweep(frozenset(), patience_s=5) == (0, ())
    assert sweep(frozenset({""}), patience_s=5) == (0, ())
    assert sweep(frozenset({crowd.boot, "another"}), patience_s=5) == (2, ())
    assert [lives(first), lives(second)] == [False, False]


def test_strangers_are_not_read_again_and_newcomers_are(crowd: Crowd) -> None:
    boots, strangers = frozenset({crowd.boot}), Strangers()
    stranger, ours = crowd.any("exec sleep 60", {}), crowd.tagged()

    def known() -> set[int]:
        strangers.look(boots)
        numbers = [entry for entry in os.scandir("/proc") if entry.name.isdigit()]
        return {int(entry.name) for entry in numbers if strangers.has(entry)}

    wait_until(lambda: stranger in known(), what="a stranger who is known")
    later = crowd.tagged()
    wait_until(lambda: set(tagged(boots, strangers)) == {ours, later}, what="both of ours")
    assert not {ours, later} & known()
    assert sweep(boots, patience_s=5, strangers=strangers) == (2, ())
    assert [lives(pid) for pid in (stranger, ours, later)] == [True, False, False]


def test_an_empty_tag_is_not_ours(crowd: Crowd) -> None:
    pid = crowd.tagged(boot="")
    assert sweep(frozenset({""}), patience_s=0.01) == (0, ())
    assert lives(pid)


def test_one_that_has_ended_is_not_waited_for(crowd: Crowd) -> None:
    pid = crowd.tagged("exit 0")
    wait_until(lambda: not lives(pid))
    assert not carries_tag(pid, frozenset({crowd.boot}))
    assert sweep(frozenset({crowd.boot}), patience_s=5) == (0, ())


def test_a_number_that_belongs_to_a_stranger_by_now_is_not_killed(crowd: Crowd) -> None:
    stranger = crowd.any("exec sleep 60", {})
    kill_tagged(stranger, frozenset({crowd.boot}))
    assert lives(stranger)
    kill_tagged(2**22 + 1, frozenset({crowd.boot}))


def test_we_never_find_ourselves() -> None:
    own = Path("/proc/self/environ").read_bytes().decode(errors="replace")
    boots = {part.split("=", 1)[1] for part in own.split("\0") if part.startswith(f"{TAG_VARIABLE}=")}
    assert os.getpid() not in list(tagged(frozenset(boots)))


_SHEDS = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None)
first = ctypes.POINTER(ctypes.c_void_p).in_dll(libc, "environ")[0]
ctypes.memset(first, 0, sum(len(name) + len(value) + 2 for name, value in os.environb.items()))
libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
os.setsid()
if os.fork() == 0:
    open("up", "w").close()
    signal.pause()
elif sys.argv[1] == "stays":
    signal.pause()
"""
"""Writes over its environment as setproctitle does, hides its memory, leaves its session, forks."""


@pytest.mark.parametrize("first", ["stays", "leaves"])
def test_neither_a_clean_environment_nor_a_hidden_one_shakes_it_off(crowd: Crowd, first: str) -> None:
    code = f"exec {sys.executable} -S -c '{_SHEDS}' {first}"
    helper = subprocess.Popen(
        ["/usr/bin/env", "-i", "/bin/sh", "-c", code],
        cwd=crowd.folder,
        env={TAG_VARIABLE: crowd.boot},
        preexec_fn=lambda: tag(crowd.boot),  # noqa: PLW1509
    )
    crowd.born.append(helper)
    wait_until((crowd.folder / "up").exists)
    found = set(tagged(frozenset({crowd.boot})))
    assert len(found - {helper.pid}) == 1
    assert sweep(frozenset({crowd.boot}), patience_s=5)[1] == ()
    assert not any(lives(pid) for pid in found)


def test_a_stranger_with_a_limit_of_its_own_is_not_ours(crowd: Crowd) -> None:
    others = ["exec sleep 60", "ulimit -S -x 1000 2> /dev/null; exec sleep 60"]
    pids = [crowd.any(script, {}) for script in others]
    assert sweep(frozenset({crowd.boot, "ff"}), patience_s=5) == (0, ())
    assert all(lives(pid) for pid in pids)


def test_one_that_somebody_else_gave_the_environment_of_a_rank_is_not_ours(crowd: Crowd) -> None:
    environ = {TAG_VARIABLE: crowd.boot}
    theirs = subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], **environ})
    crowd.born.append(theirs)
    wait_until(lambda: crowd.boot.encode() in Path(f"/proc/{theirs.pid}/environ").read_bytes())
    assert sweep(frozenset({crowd.boot}), patience_s=5) == (0, ())
    assert lives(theirs.pid)


_WITHOUT_LIMITS = """
import os, resource, subprocess, sys, time
from faultrun.workers.process import become_subreaper
from faultrun.workers.sweep import TAG_VARIABLE, sweep, tagged
boot, theirs = sys.argv[1], int(sys.argv[2])
become_subreaper()
environ = {**os.environ, TAG_VARIABLE: boot}
command = "exec 2> /dev/null; setsid sh -c 'sleep 60 & echo up > up' & sleep 60; :"
subprocess.Popen(["sh", "-c", command], env=environ)
while not os.path.exists("up") or len(set(tagged(frozenset({boot})))) < 3:
    time.sleep(0.01)
print(theirs in set(tagged(frozenset({boot}))), *sweep(frozenset({boot}), patience_s=5)[1])
"""


def test_where_limits_cannot_be_set_orphans_are_found_and_not_whom_another_started(crowd: Crowd) -> None:
    command = f"import os; os.environ[{TAG_VARIABLE!r}] = {crowd.boot!r}; os.execvp('sleep', ['sleep', '60'])"
    shell = crowd.any(f'{sys.executable} -S -c "{command}" & echo $! > theirs; wait', {})
    theirs = int(wait_until(lambda: text_of(crowd.folder / "theirs").strip(), what="a tool of theirs"))
    few = (1000, 1000)
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_LIMITS, crowd.boot, str(theirs)],
        cwd=crowd.folder,
        preexec_fn=lambda: resource.setrlimit(10, few),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (["False"], "")
    assert lives(shell)
    assert lives(theirs)


def test_the_limits_of_two_supervisors_differ_and_fit(crowd: Crowd) -> None:
    limits = {tag_limit(os.urandom(8).hex()) for _ in range(1000)}
    assert len(limits) == 1000
    assert all(0 < limit < 2**62 for limit in limits)
