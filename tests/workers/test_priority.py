"""How a worker is scheduled while ranks meet, and that it is taken back."""

import os
import subprocess
import sys
from pathlib import Path

from faultrun.workers.priority import as_usual, without_preempting

THREADS = """
import threading
threads = [threading.Thread(target=threading.Event().wait, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
print("ready", flush=True)
threading.Event().wait()
"""


def policies(pid: int) -> list[int]:
    return [os.sched_getscheduler(int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir()]


def test_every_thread_changes_its_policy_and_gets_it_back() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", THREADS], stdout=subprocess.PIPE) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"ready\n"
            usual = policies(worker.pid)
            assert usual == [os.SCHED_OTHER] * 4
            without_preempting(worker.pid)
            assert policies(worker.pid) == [os.SCHED_BATCH] * 4
            as_usual(worker.pid)
            assert policies(worker.pid) == usual
        finally:
            worker.kill()


def test_a_policy_that_somebody_chose_and_a_process_that_ended_are_left_alone() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", THREADS], stdout=subprocess.PIPE) as worker:
        try:
            assert worker.stdout is not None
            worker.stdout.readline()
            os.sched_setscheduler(worker.pid, os.SCHED_IDLE, os.sched_param(0))
            without_preempting(worker.pid)
            as_usual(worker.pid)
            assert os.sched_getscheduler(worker.pid) == os.SCHED_IDLE
        finally:
            worker.kill()
    without_preempting(worker.pid)
    as_usual(worker.pid)
