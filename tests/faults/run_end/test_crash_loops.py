"""Runs that fail again and again, and what their last words prove about it."""

import json
from pathlib import Path

from support.runs import Launcher


def test_the_same_exception_twice_ends_the_run_and_its_own_line_is_named(launcher: Launcher) -> None:
    run = launcher.run("def step(n):\n    raise ValueError(f'bad batch {n}')\nstep(os.getpid())")
    assert run.ends() == 93
    assert len(run.events("IncarnationStarted")) == 2
    found = run.judgement(2)
    assert found["raised"]["frame"].startswith("worker.py:")
    assert found["raised"]["frame"].endswith(" in step")
    assert found["signature"]["what"] == "ValueError: bad batch #"
    assert "restart   none: the same failure twice without progress: ValueError: bad batch #" in run.card(2)


def test_rows_of_ones_own_are_asked_first_and_decide(launcher: Launcher) -> None:
    rows = [{"name": "moody", "class": "transient", "pattern": "moody service", "says": "the service sulks"}]
    (launcher.folder / "rows.json").write_text(json.dumps(rows))
    run = launcher.run(
        "if life < 3: raise RuntimeError('moody service')", "--signatures=rows.json", "--backoff=1ms..1ms"
    )
    assert run.ends() == 0
    assert "cause     the service sulks: RuntimeError: moody service (worker.py:" in run.card(3)


def test_the_note_of_torchs_record_is_older_than_the_exit_of_the_peer_it_broke(launcher: Launcher) -> None:
    """Rank 1 raised and is slow to end; rank 0, whose peer it was, is gone before."""
    note = {"message": {"message": "ValueError: mine", "extraInfo": {"py_callstack": "", "timestamp": "1"}}}
    run = launcher.run(
        f"note = {json.dumps(note)!r}\n"
        """
import time
if life == 0 and rank == 1:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    path = os.environ["TORCHELASTIC_ERROR_FILE"]
    with open(path + ".tmp", "w") as file:
        file.write(note)
    os.rename(path + ".tmp", path)
    train()
if life == 0:
    other = os.environ["TORCHELASTIC_ERROR_FILE"].replace("error_0", "error_1")
    while not os.path.exists(other):
        time.sleep(0.002)
    raise ConnectionResetError(104, "Connection reset by peer")
"""
    )
    assert run.ends() == 0
    found = run.judgement(1)
    assert (found["rank"], found["followers"]) == (1, [0])
    assert found["blamed_by"] == "it recorded its error before the first exit"
    assert "cause     ValueError: mine" in run.card(1)


def test_a_worker_that_the_kernel_ended_for_memory_is_said_to_be_so(launcher: Launcher) -> None:
    """A control group of its own with 48 MiB, where we may make one; a limit on its memory elsewhere."""
    run = launcher.run(
        """
from contextlib import suppress
def limited():
    group = f"/sys/fs/cgroup/memory/faultrun_test_{os.getpid()}"
    try:
        os.mkdir(group)
        open(group + "/memory.limit_in_bytes", "w").write(str(48 << 20))
        open(group + "/cgroup.procs", "w").write(str(os.getpid()))
    except OSError:
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20))
        return ""
    return group
if life == 0 and rank == 0:
    print(limited(), file=open("group", "w"), flush=True)
    eaten = []
    while True:
        eaten.append(bytearray(b"x" * (1 << 20)))
train_in_the_first_life()
"""
    )
    assert run.ends() == 0
    group = (launcher.folder / "group").read_text().strip()
    if group:
        Path(group).rmdir()
    found = run.judgement(1)
    assert found["finding"]["name"] == ("oom-killer" if group else "host-memory")
    assert found["fault_class"] == "resource"
    assert "cause     out of memory" in run.card(1) or not group
