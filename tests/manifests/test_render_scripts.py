"""Rendered batch scripts and images, run or read as a shell and a container runtime would."""

import json
import subprocess
from pathlib import Path

import pytest

from support.manifests import rendered

FAKES = {
    "srun": '#!/bin/sh\nprintf "%s\\n" "$@" > "$SEEN/srun"\nexit "$ENDS"\n',
    "scontrol": '#!/bin/sh\necho "$@" > "$SEEN/scontrol"\n',
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
    assert started[:3] == [f"--ntasks={tasks}", "--kill-on-bad-exit=0", "faultrun"]
    assert started[3 : 3 + len(words)] == words
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
