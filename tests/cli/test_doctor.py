"""``faultrun doctor`` itself, as a real process, inside a PID namespace too."""

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from support.machine.scripts import faultrun


def doctor(*words: str, environ: dict[str, str] | None = None, cwd: Path) -> tuple[int, list[dict[str, str]]]:
    """Exit code and checks of a real ``faultrun doctor``."""
    done = faultrun("doctor", "--json", *words, environ=clean_environ() | (environ or {}), cwd=cwd)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def clean_environ() -> dict[str, str]:
    ours = ("FAULTRUN_", "PET_", "RANK_TABLE_FILE", "ASCEND_", "CUDA_", "KUBERNETES_", "SLURM_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def named(checks: list[dict[str, str]], name: str) -> dict[str, str]:
    return next(check for check in checks if check["check"] == name)


@pytest.mark.slow
def test_a_sound_machine_ends_with_0_and_every_check_says_its_status(tmp_path: Path) -> None:
    code, checks = doctor("--checkpoint_dir", str(tmp_path / "new"), cwd=tmp_path)
    assert code == 0
    assert all(list(check) == ["check", "status", "what", "fix"] for check in checks)
    assert all(bool(check["fix"]) == (check["status"] != "ok") for check in checks)
    names = {check["check"] for check in checks}
    assert names >= {
        "cgroup", "memory", "cpu", "pids", "shm", "nofile", "nproc", "core", "memlock", "pid-1", "parent",
        "kernel", "log_dir", "checkpoint_dir", "window", "ports", "frameworks", "devices", "termination log",
        "clock",
    }  # fmt: skip
    assert "is not there yet" in named(checks, "checkpoint_dir")["what"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_log_dir_that_cannot_be_written_fails(tmp_path: Path) -> None:
    code, checks = doctor("--log_dir", "/proc/faultrun", cwd=tmp_path)
    assert (code, named(checks, "log_dir")["status"]) == (1, "fail")


@pytest.mark.slow
def test_the_last_checkpoint_is_held_against_the_window(tmp_path: Path) -> None:
    from support.checkpoints.ckpt_bytes import ckpt, save

    for rank in range(2):
        save(tmp_path / f"rank_{rank}" / "net-2_40.ckpt", ckpt(2, 80, global_step=80))
        save(tmp_path / f"rank_{rank}" / "net-1_40.ckpt", ckpt(1, 40, global_step=40))
    code, checks = doctor("--checkpoint_dir", str(tmp_path), "--stop_grace=1m", cwd=tmp_path)
    assert code == 0
    assert "the last one (2 files, " in named(checks, "save")["what"]
    assert named(checks, "window")["what"] == "60 s to save when stopped (--stop_grace)"
    code, checks = doctor("--checkpoint_dir", str(tmp_path), "--grace=0", cwd=tmp_path)
    assert (code, named(checks, "save")["status"]) == (1, "fail")


@pytest.mark.slow
def test_variables_count_and_a_wrong_one_fails(tmp_path: Path) -> None:
    table = tmp_path / "hccl.json"
    table.write_text('{"status":"initializing"}')
    environ = {
        "FAULTRUN_CHECKPOINT_DIR": str(tmp_path),
        "FAULTRUN_TERMINATION_GRACE_S": "600",
        "FAULTRUN_MAX_RESTART": "3",
        "RANK_TABLE_FILE": str(table),
        "ASCEND_VISIBLE_DEVICES": "0-7",
    }
    code, checks = doctor(cwd=tmp_path, environ=environ)
    assert code == 0
    assert "595 s to save" in named(checks, "window")["what"]
    assert named(checks, "checkpoint_dir")["status"] == "ok"
    assert "FAULTRUN_MAX_RESTARTS" in named(checks, "variables")["fix"]
    assert named(checks, "rank table")["status"] == "warn"
    assert named(checks, "devices")["status"] == "warn"
    code, checks = doctor(cwd=tmp_path, environ={"FAULTRUN_GRACE": "soon"})
    assert (code, named(checks, "variables")["status"]) == (1, "fail")
    _, checks = doctor(cwd=tmp_path, environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert "FAULTRUN_TERMINATION_GRACE_S" in named(checks, "window")["fix"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "status", "says"),
    [('"$@"; true', "warn", "is a shell: sh -c"), ('exec "$@"', "ok", "this very process")],
)
def test_a_shell_as_pid_1_is_seen_from_inside(tmp_path: Path, command: str, status: str, says: str) -> None:
    unshare = shutil.which("unshare")
    words = [unshare or "", "--pid", "--fork", "--mount-proc"]
    if (
        unshare is None
        or subprocess.run([*words, "true"], capture_output=True, timeout=10, check=False).returncode
    ):
        pytest.skip("no right to make a PID namespace here")
    before = (*words, "sh", "-c", command, "sh")
    done = faultrun("doctor", "--json", before=before, environ=clean_environ(), cwd=tmp_path)
    found = named(json.loads(done.stdout), "pid-1")
    assert found["status"] == status
    assert found["what"].startswith(says)


@pytest.mark.slow
def test_ulimits_and_a_taken_port_are_seen(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("127.0.0.1", 29500))
            server.listen()
        except OSError:
            pytest.skip("somebody holds port 29500 already")
        before = ("bash", "-c", 'ulimit -Sn 512; exec "$@"', "bash")
        done = faultrun("doctor", before=before, environ=clean_environ(), cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert any(line.startswith("warn  nofile ") and "512, of " in line for line in lines)
    (taken,) = (line for line in lines if line.startswith("warn  ports"))
    assert f"29500 by {(Path('/proc/self/comm').read_text().strip())} (pid {os.getpid()})" in taken
    assert " · " in taken
