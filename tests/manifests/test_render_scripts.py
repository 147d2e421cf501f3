"""Rendered batch scripts and images, run or read as a shell and a container runtime would."""

import json
import subprocess
from pathlib import Path

import pytest

from support.manifests import rendered

FAKES = {
    "srun": '#!/bin/sh\nprintf "%s\\n" "$@" > "$SEEN/srun"\nexit "$ENDS"\n',
    "scontrol": '#!/bin/sh\n[ "$1" = show ] || echo "$@" > "$SEEN/scontrol"\n',
}


@pytest.mark.parametrize(
    ("ends", "left_s", "queued"),
    [(143, 100, True), (143, 3600, False), (0, 100, False), (93, 100, False), (143, None, False)],
)
def test_the_batch_script_is_queued_again_at_the_time_limit_and_never_else(
    tmp_path: Path, ends: int, left_s: int | None, queued: bool
) -> None:
    for name, text in FAKES.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    script = rendered("slurm", "args=--name=a b", "args=$HOME", "options=--tee=3", "partition=gpu")
    end = "" if left_s is None else f"export SLURM_JOB_END_TIME=$(( $(date +%s) + {left_s} ))\n"
    done = subprocess.run(
        ["bash", "-c", end + script],
        env={
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "SEEN": str(tmp_path),
            "ENDS": str(ends),
            "SLURM_JOB_ID": "42",
        },
        timeout=20,
        check=False,
    )
    assert done.returncode == ends
    assert (tmp_path / "scontrol").read_text().startswith("#!") is not queued
    words = (tmp_path / "srun").read_text().splitlines()
    assert words[words.index("faultrun") :] == [
        *("faultrun", "--nproc-per-node=8", "--checkpoint_dir=/job/output/checkpoints"),
        *("--resume=always", "--tee=3", "/job/code/train.py", "--name=a b", "$HOME"),
    ]
    assert "#SBATCH --signal=TERM@120\n" in script
    assert "#SBATCH --requeue\n" in script
    assert script.startswith("#!/bin/bash\n# Rendered by:")


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING", "CANCELLED"])
@pytest.mark.parametrize("preempted", ["None", "2026-11-28T10:00:00"])
@pytest.mark.parametrize("left_s", [-5, 58, 105, 179, 185, 3600])
@pytest.mark.parametrize("code", [0, 93, 143])
def test_slurm_itself_is_asked_when_the_job_ends_and_whether_it_was_preempted_or_cancelled(
    tmp_path: Path, state: str, preempted: str, left_s: int, code: int
) -> None:
    told = f"JobId=42 JobState={state} Reason=None EndTime=$(date -d @$END +%FT%T) Deadline=N/A"
    shows = f'echo "{told}\n   PreemptEligibleTime=2026-11-28T09:00:00 PreemptTime={preempted} X=1"'
    asks = f'#!/bin/sh\ncase $1 in show) {shows};; *) echo "$@" > "$SEEN/queued";; esac\n'
    for name, text in {**FAKES, "scontrol": asks}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    script = f"export END=$(( $(date +%s) + {left_s} ))\n" + rendered("slurm")
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SEEN": str(tmp_path), "ENDS": str(code)}
    done = subprocess.run(
        ["bash", "-c", script], env=environ | {"SLURM_JOB_ID": "42"}, check=False, timeout=20
    )
    assert done.returncode == code
    again = code == 143 and state == "RUNNING" and (preempted != "None" or left_s <= 180)
    assert (tmp_path / "queued").exists() is again


@pytest.mark.parametrize(
    ("settings", "words", "tasks"),
    [
        (("nodes=3", "spares=1"), ["--nnodes=3", "--rdzv-id=42", "--master_addr=gpu07"], 4),
        (
            ("nodes=2", "etcd=e0:2379"),
            ["--nnodes=2", "--rdzv-id=42", "--rdzv-backend=etcd", "--rdzv-endpoint=e0:2379"],
            2,
        ),
    ],
)
def test_the_batch_script_starts_a_supervisor_on_each_node(
    tmp_path: Path, settings: tuple[str, ...], words: list[str], tasks: int
) -> None:
    for name, text in {**FAKES, "scontrol": "#!/bin/sh\nprintf 'gpu07\\ngpu08\\n'\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    script = rendered("slurm", *settings)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SEEN": str(tmp_path), "ENDS": "0", "SLURM_JOB_ID": "42"}
    subprocess.run(
        ["bash", "-eu", "-c", script], env=environ | {"SLURM_JOB_NODELIST": "gpu0[7-8]"}, check=True
    )
    started = (tmp_path / "srun").read_text().splitlines()
    lives = ["--no-kill"] if tasks == 4 else []
    begins = [f"--ntasks={tasks}", "--kill-on-bad-exit=0", *lives, "faultrun", *words]
    assert started[: len(begins)] == begins
    assert ("#SBATCH --no-kill\n" in script) is bool(lives)
    assert f"#SBATCH --nodes={tasks}\n#SBATCH --ntasks-per-node=1\n" in script


def test_the_image_starts_faultrun_without_a_shell() -> None:
    text = rendered("Dockerfile", "base_image=mindspore:2.3", "code=src", "user=4711")
    lines = dict(line.partition(" ")[::2] for line in text.splitlines() if line and not line.startswith("#"))
    assert lines["FROM"] == "mindspore:2.3"
    assert json.loads(lines["ENTRYPOINT"]) == ["faultrun"]
    assert (lines["COPY"], lines["USER"], lines["STOPSIGNAL"]) == ("src /job/code", "4711", "SIGTERM")
    assert "COPY" not in rendered("Dockerfile", "base_image=a")
    held = rendered("Dockerfile", "base_image=a", "hold_signals=true")
    assert 'ENTRYPOINT ["env", "--block-signal=TERM,INT,HUP,USR1,USR2", "faultrun"]\n' in held
    assert "ENTRYPOINT" not in held.replace('ENTRYPOINT ["env"', "", 1)
