"""A training that a file starts: shell and batch scripts, manifests, Dockerfiles."""

import json
from pathlib import Path

import pytest
import yaml

from support.adopting import adopted, asked, left_open, refused, written

SCRIPT = """
import argparse
import torch
p = argparse.ArgumentParser()
p.add_argument("--resume")
p.add_argument("--out", default="ckpt")
a = p.parse_args()
torch.load(a.resume)
torch.save({}, a.out + "/x.pt")
"""

RUN = """#!/bin/bash
# torchrun is started below
set -e
cd "$(dirname "$0")"
NPROC=2
LR=0.1
ARGS=(--lr $LR
      --name "a b")
MORE="--x 1 --y 2"
echo torchrun --nproc_per_node=9 nothing.py
OMP_NUM_THREADS=3 torchrun --nproc_per_node=$NPROC --master_port ${PORT:-29511} \\
    train.py "${ARGS[@]}" $MORE --seed $SEED > log.txt 2>&1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path, train__py=SCRIPT, run__sh=RUN)


def test_a_shell_script_is_read_with_its_variables_and_arrays(folder: Path) -> None:
    found = adopted(folder, "run.sh")
    assert found["options"] == {"worker_num": ["2"], "master_port": ["29511"]}
    assert left_open(folder) == {"checkpoint_dir": "ckpt", "resume_arg": "--resume={checkpoint}"}
    assert found["command"] == [
        *("faultrun", "train.py", "--lr", "0.1", "--name", "a b", "--x", "1", "--y", "2", "--seed", "$SEED")
    ]
    assert found["environment"] == {"OMP_NUM_THREADS": "3"}


def test_the_line_of_the_script_is_replaced_with_its_own_words(folder: Path) -> None:
    told = asked(folder, "run.sh").stdout
    line = 'OMP_NUM_THREADS=3 faultrun train.py "${ARGS[@]}" $MORE --seed $SEED'
    assert f"  {line}\n" in told
    diff = json.loads(asked(folder, "--json", "run.sh").stdout)["diff"]
    assert f"+{line} > log.txt 2>&1\n" in diff
    assert asked(folder, "--apply", "run.sh").exception is None
    text = (folder / "run.sh").read_text()
    assert f"{line} > log.txt 2>&1\n" in text
    assert text.partition("OMP_NUM_THREADS")[0] == RUN.partition("OMP_NUM_THREADS")[0]
    assert "echo torchrun --nproc_per_node=9" in text


def test_a_script_that_calls_another_one_is_followed_with_its_arguments(folder: Path) -> None:
    written(
        folder,
        train_start__sh="#!/bin/bash\nout=here\nbash main.sh 2 $out",
        main__sh="export NUM=$1\nOUT=$2\ntorchrun --nproc_per_node ${NUM} train.py --out=${OUT}\n",
    )
    found = adopted(folder, "train_start.sh")
    assert found["options"]["worker_num"] == ["2"]
    assert left_open(folder)["checkpoint_dir"] == "here"
    assert found == {**adopted(folder, "bash train_start.sh"), "written": found["written"]}


LOOP = """
DEVICES=$1
for ((i = 0; i < DEVICES; i++)); do
  export DEVICE_ID=$i RANK_ID=$i
  mkdir -p "rank$i"
  python train.py --out=out --device=$i > "rank$i/log" 2>&1 &
done
wait
"""


def test_a_loop_over_devices_is_named_as_one(folder: Path) -> None:
    (folder / "main.sh").write_text(LOOP)
    found = adopted(folder, "main.sh")
    assert any("a loop" in one and "main.sh:6" in one for one in found["notes"])
    assert left_open(folder)["checkpoint_dir"] == "out"
    assert "main.sh" not in found["diff"], "which lines the loop has is not for a machine to guess"


def test_a_count_that_a_script_takes_from_its_environment_is_said_to_be_one(folder: Path) -> None:
    (folder / "a.sh").write_text("NP=${NP:-2}\ntorchrun --nproc-per-node=$NP train.py --lr=${LR:-1}\n")
    found = adopted(folder, "a.sh")
    assert found["notes"] == ["a.sh takes NP from its environment, if that is set: read here is 2"]


def test_of_several_commands_the_one_with_a_launcher_is_taken_and_the_others_are_named(folder: Path) -> None:
    (folder / "a.sh").write_text(
        "python prepare.py\ntorchrun --nproc-per-node=2 train.py\npython report.py\n"
    )
    found = adopted(folder, "a.sh")
    assert found["command"] == ["faultrun", "train.py"]
    assert "taken: a.sh:2; a.sh:1, a.sh:3 start Python, too" in found["notes"]


SBATCH = """#!/bin/bash
#SBATCH --job-name=t
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --time=01:00:00
module load python
srun python train.py --out=/scratch/run7
"""


def test_a_batch_script_tells_its_tasks(folder: Path) -> None:
    (folder / "job.sbatch").write_text(SBATCH)
    found = adopted(folder, "sbatch --partition=gpu job.sbatch")
    assert found["options"]["worker_num"] == ["4"]
    assert found["read"]["worker_num"].startswith("job.sbatch:4")
    assert left_open(folder)["checkpoint_dir"] == "/scratch/run7"
    assert any("--signal=TERM@120" in one for one in found["notes"])
    (folder / "job.sbatch").write_text(SBATCH.replace("--nodes=1", "--nodes=4"))
    found = adopted(folder, "job.sbatch")
    assert (found["options"]["nnodes"], found["options"]["nproc_per_node"]) == (["4"], ["4"])
    assert found["read"]["nnodes"] == "job.sbatch:3 #SBATCH"


def manifest(command: str, kind: str = "batch.volcano.sh/v1alpha1 Job", replicas: int = 1) -> str:
    version, _, name = kind.rpartition(" ")
    container = (
        f"          containers:\n            - name: train\n              image: i\n              {command}\n"
        "              resources: {limits: {nvidia.com/gpu: 2}}\n"
    )
    pod = f"template:\n        spec:\n{container}"
    if name == "PyTorchJob":
        body = f"  pytorchReplicaSpecs:\n    Master:\n      replicas: {replicas}\n      {pod}"
    else:
        body = f"  tasks:\n    - name: t\n      replicas: {replicas}\n      {pod}"
    return (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n---\n"
        f"apiVersion: {version}\nkind: {name}\nmetadata:\n  name: j\nspec:\n{body}"
    )


@pytest.mark.parametrize(
    ("command", "words", "options", "saves"),
    [
        (
            'command: [torchrun, --nproc_per_node=2, /workspace/train.py, "--out=/ckpt"]',
            ["faultrun", "/workspace/train.py", "--out=/ckpt"],
            {"worker_num": ["2"]},
            "/ckpt",
        ),
        (
            'command: [sh, -c, "cd /workspace && exec torchrun --nproc_per_node=2 train.py --out /ckpt"]',
            ["faultrun", "train.py", "--out", "/ckpt"],
            {"worker_num": ["2"]},
            "/ckpt",
        ),
        ("command: [python]\n              args: [train.py]", ["faultrun", "train.py"], {}, "ckpt"),
    ],
)
@pytest.mark.parametrize(
    "kind", ["batch.volcano.sh/v1alpha1 Job", "kubeflow.org/v1 PyTorchJob", "mindxdl.gitee.com/v1 AscendJob"]
)
def test_the_container_command_of_a_manifest_is_replaced(
    folder: Path, command: str, words: list[str], options: dict[str, list[str]], saves: str, kind: str
) -> None:
    (folder / "job.yaml").write_text(manifest(command, kind))
    found = adopted(folder, "job.yaml")
    assert found["command"] == words
    assert found["options"] == options
    assert left_open(folder)["checkpoint_dir"] == saves
    assert found["config"] == str(folder / "faultrun.yaml"), "the script lies beside the manifest"
    told = asked(folder, "--force", "job.yaml").stdout
    (line,) = [one for one in told.splitlines() if one.startswith("  command: [")]
    assert yaml.safe_load(line)["command"] == words
    assert "faultrun lint job.yaml" in told
    if "cd /workspace" in command:
        assert '  workingDir: "/workspace"' in told
    if "nproc" not in command:
        assert any("nvidia.com/gpu: 2" in one for one in found["notes"])


def test_a_script_that_is_in_the_image_alone_gets_every_option_on_the_command(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(manifest("command: [torchrun, --nproc_per_node=2, /app/train.py]"))
    found = adopted(tmp_path, "job.yaml")
    assert found["command"] == ["faultrun", "--worker_num=2", "/app/train.py"]
    assert (found["config"], found["written"]) == (None, False)
    assert any("/app/train.py is not here" in one for one in found["missing"])
    assert not list(tmp_path.glob("faultrun.yaml"))


def parallel(count: int) -> str:
    pod = "{containers: [{name: t, image: i, command: [torchrun, train.py]}]}"
    spec = f"parallelism: {count}, completionMode: Indexed, template: {{spec: {pod}}}"
    return f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j}}\nspec: {{{spec}}}\n"


def job_set(replicas: int, count: int) -> str:
    spec = parallel(count).partition("spec: ")[2]
    return (
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: j}\nspec:\n  replicatedJobs:\n"
        f"    - {{name: w, replicas: {replicas}, template: {{spec: {spec.strip()}}}}}\n"
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (manifest("command: [torchrun, train.py]", replicas=3), "3 pods"),
        (parallel(4), "4 pods"),
        (job_set(3, 2), "6 pods"),
        (job_set(3, 1), "3 pods"),
        (manifest("env: []"), "names no command"),
        (manifest("command: [sleep, infinity]"), "starts no training"),
        (manifest("command: [bash, -c, ./train_start.sh]"), "cannot be followed"),
        ("a: 1\n", "starts no container"),
        ("a: [\n", "is not YAML"),
    ],
)
def test_a_manifest_that_cannot_be_adopted_says_why(folder: Path, text: str, what: str) -> None:
    (folder / "job.yaml").write_text(text)
    error = refused(folder, "job.yaml")
    assert what in error.what, error


@pytest.mark.parametrize(
    "text",
    [
        'FROM x\nWORKDIR /app\nENTRYPOINT ["torchrun", "--nproc_per_node=2"]\nCMD ["train.py"]\n',
        "FROM x\nCMD torchrun --nproc_per_node=2 \\\n    train.py\n",
        'FROM x\nENTRYPOINT ["sh", "-c", "torchrun --nproc_per_node=2 train.py"]\n',
    ],
)
def test_a_dockerfile_is_read(folder: Path, text: str) -> None:
    (folder / "Dockerfile").write_text(text)
    found = adopted(folder, "Dockerfile")
    assert found["command"] == ["faultrun", "train.py"]
    assert found["options"]["worker_num"] == ["2"]


def test_a_dockerfile_without_a_command_says_so(folder: Path) -> None:
    (folder / "Dockerfile").write_text("FROM x\nRUN pip install torch\n")
    assert "starts nothing" in refused(folder, "Dockerfile").what


def test_a_manifest_of_our_own_template_is_understood(folder: Path) -> None:
    (folder / "job.yaml").write_text(manifest("command: [faultrun, --worker_num=2, train.py]"))
    assert adopted(folder, "job.yaml")["options"]["worker_num"] == ["2"]


TRAIN_START = """#!/bin/bash
data_path=/job/data/imagenet_full/train
config_path=/job/code/resnet/config/resnet.yaml
device_count=$(get_json_value ${RANK_TABLE_FILE} device_count)
if [[ "$server_count" == "1" ]]; then
    bash main.sh ${device_count} ${data_path} ${config_path}
else
    bash main.sh ${device_count} ${data_path} ${config_path}
fi
"""
MAIN = """#!/bin/bash
export RANK_SIZE=$1
DATA_PATH=$2
CONFIG_PATH=$3
OUTPUT_PATH=/job/output
ROOT_PATH=$(cd "`dirname $0`" || exit; pwd)
for((i=0; i<${RANK_SIZE}; i++))
do
    export DEVICE_ID=${i}
    mkdir ./train_parallel$i
    cd ./train_parallel$i || exit
    python ${ROOT_PATH}/../train.py --device_num=${RANK_SIZE} --config_path=${CONFIG_PATH} \\
        --output_path=${OUTPUT_PATH} &> log &
    cd ..
done
wait
"""
MODELZOO = """
import mindspore as ms
config = get_config()
def resume():
    return ms.load_checkpoint(config.pre_trained)
"""
VALUES = """output_path: /cache
checkpoint_path: ./checkpoint/
pre_trained: ''
has_trained_epoch: 0
has_trained_step: 0
"""
STARTS = '["/bin/bash", "-c", "cd /job/code/resnet/scripts; chmod +x train_start.sh; ./train_start.sh;"]'


def test_the_seeds_train_start_in_a_vcjob_is_followed_down_to_its_python(tmp_path: Path) -> None:
    for name, text in {
        "scripts/train_start.sh": TRAIN_START,
        "scripts/main.sh": MAIN,
        "config/resnet.yaml": VALUES,
        "train.py": MODELZOO,
        "scripts/job.yaml": manifest(f"command: {STARTS}"),
    }.items():
        path = tmp_path / "resnet" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = adopted(tmp_path / "resnet", "scripts/job.yaml")
    assert found["options"] == {"worker_dir": ["train_parallel{rank}"]}
    assert left_open(tmp_path / "resnet") == {"checkpoint_dir": "DIR", "resume_arg": "--OPTION={checkpoint}"}
    shell, c, line = found["command"]
    assert (shell, c) == ("sh", "-c"), "a variable is left for a shell to fill in"
    assert line.startswith("exec faultrun /job/code/resnet/scripts/../train.py --device_num=${RANK_SIZE} ")
    assert any("a loop" in one for one in found["notes"])
    assert len(found["missing"]) == 2


@pytest.mark.long
@pytest.mark.parametrize("line", ["A=$A$A\n", 'A="$A $A"\n', 'A+=("${A[@]}" "${A[@]}")\n'])
def test_a_variable_that_doubles_at_every_line_is_cut(folder: Path, line: str) -> None:
    (folder / "run.sh").write_text(f"A=xx\n{line * 60}torchrun --nproc-per-node=2 train.py $A\n")
    found = adopted(folder, "run.sh")
    assert sum(map(len, found["command"])) < 1 << 19
    assert found["options"]["worker_num"] == ["2"]


@pytest.mark.long
def test_a_path_that_is_longer_than_any_is_not_looked_for(folder: Path) -> None:
    (folder / "run.sh").write_text(f"torchrun --nproc-per-node=2 {'/a' * 100_000}/train.py\n")
    assert any("is not here" in one for one in adopted(folder, "run.sh")["missing"])
