"""A start that is killed while it makes room for itself is repeated by the next one; no old value stays."""

from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest

from faultrun.cli.run.outlets import without_secrets
from faultrun.cli.run.start_and_end import asked_otherwise, at_end, begin_anew, of_this_run, other_script
from faultrun.configs.apply import apply
from faultrun.journal.append import FILE_NAME, JournalWriter
from faultrun.journal.codec import encode
from faultrun.journal.logdir import Claimed, claim, write_record
from faultrun.model.edit import Setting
from faultrun.model.spec.run_spec import Resume
from faultrun.model.topology import BootId, RunId
from support.asking import plan
from support.machine.processes import killed_at_change
from support.stories.story import NODE, Story, new_run

TRAIN = "pre_trained: ''\nlr: 0.1\n"


def ended(folder: Path) -> Claimed:
    """A run that rewrote ``train.yaml`` and ended with 0."""
    log_dir = folder / "log"
    log_dir.mkdir(parents=True)
    (folder / "train.yaml").write_text(TRAIN)
    apply(
        [Setting(file=str(folder / "train.yaml"), key="pre_trained", value="/ckpt/5")],
        originals=log_dir / "original",
    )
    journal = JournalWriter(log_dir / FILE_NAME, next_seq=0, node=NODE, boot=BootId("b"))
    for event, step in Story(1).begins().returned(0).drained().steps:
        journal.append(event, step)
    journal.close()
    write_record(log_dir, {"run_id": "before"})
    return Claimed(path=log_dir, past=None, run_id="new", ended_run="before")


def begin(claimed: Claimed) -> None:
    if (claimed.path / FILE_NAME).exists():
        begin_anew(claimed, Resume.AUTO, lambda _: None)


@pytest.mark.long
def test_killed_at_any_change_no_checkpoint_of_the_run_before_stays_in_a_config(tmp_path: Path) -> None:
    for at in count(1):
        folder = tmp_path / str(at)
        claimed = ended(folder)
        code = killed_at_change(at, partial(begin, claimed))
        begin(claimed)
        assert (folder / "train.yaml").read_text() == TRAIN
        assert list((claimed.path / "original").glob("*")) == []
        assert [path.name for path in (claimed.path / "runs").iterdir()] == ["before"]
        assert (claimed.path / "runs" / "before" / "original" / "index.json").exists()
        if code == 0:
            assert at > 20
            break


def continued(folder: Path, before: tuple[str, ...], now: tuple[str, ...]) -> str:
    write_record(folder, {"run_id": "r", "spec": encode(without_secrets(plan(*before).spec))})
    return asked_otherwise(Claimed(path=folder, past=None, run_id="r"), plan(*now).spec, RunId("r"))


def test_a_run_that_is_continued_by_another_command_says_what_is_new(script: str, tmp_path: Path) -> None:
    before = ("--worker_num=4", "--checkpoint_dir=a", script, "--lr", "0.1", "--token=secret")
    assert continued(tmp_path, before, before) == ""
    now = ("--worker_num=2", "--checkpoint_dir=b", script, "--lr", "0.2", "--token=secret")
    assert continued(tmp_path, before, now) == (
        "; the command has changed: 2 workers (before: 4); "
        f"{script} --lr 0.2 '--token=(hidden)' (before: {script} --lr 0.1 '--token=(hidden)'); "
        "--checkpoint_dir b (before: a)"
    )
    assert continued(tmp_path, before, ("--worker_num=4", script, *before[3:])) == (
        "; the command has changed: --checkpoint_dir none (before: a)"
    )
    assert continued(tmp_path, before, ("--resume=never", *before)) == (
        "; --resume=never counts for a new run, so with --log_dir=OTHER"
    )


def test_a_record_that_cannot_be_read_tells_of_no_change(script: str, tmp_path: Path) -> None:
    claimed = Claimed(path=tmp_path, past=None, run_id="r")
    for text in ("", "{}", '{"spec": []}', '{"spec": {"topology": {"nodes": [{"slots": "x"}]}}}'):
        (tmp_path / "run.json").write_text(text)
        assert asked_otherwise(claimed, plan("--worker_num=1", script).spec, RunId("r")) == ""


def test_a_node_that_goes_on_with_another_run_than_the_others_says_so(script: str, tmp_path: Path) -> None:
    several = ("--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=etcd", "--rdzv-endpoint=127.0.0.1:2379")
    spec = plan(*several, "--rdzv-id=job42", script).spec
    claimed = Claimed(path=tmp_path, past=None, run_id="job41")
    said = asked_otherwise(claimed, spec, spec.run_id)
    assert said.startswith("; the command names run job42, and nodes with a new --log_dir look for that: ")
    assert "--rdzv-id=job41 on all nodes goes on with this run, --log_dir=OTHER here begins job42" in said
    assert asked_otherwise(replace(claimed, run_id="job42"), spec, spec.run_id) == ""
    alone = plan("--worker_num=1", "--run_id=job42", script).spec
    assert asked_otherwise(claimed, alone, alone.run_id) == "", "whoever is alone misses nobody"


def recorded_as(folder: Path, *words: str, run_id: str = "r") -> dict[str, Any]:
    """What ``run.json`` says of a run with these words that was started in ``folder``."""
    spec = encode(without_secrets(plan(*words).spec))
    return {"run_id": run_id, "cwd": str(folder), "spec": spec}


@pytest.mark.parametrize(
    ("before", "now", "other"),
    [
        (("a.py",), ("a.py", "--lr=1"), ""),
        (("a.py",), ("./a.py",), ""),
        (("a.py",), ("copy/a.py",), ""),
        (("a.py",), ("b.py",), "a.py"),
        (("a.py",), ("changed/a.py",), "a.py"),
        (("gone/c.py",), ("c.py",), ""),
        (("-m", "a"), ("-m", "b"), "a"),
        (("bash", "a.sh"), ("bash", "b.sh"), "a.sh"),
        (("env", "a.py", "1"), ("env", "a.py", "2"), ""),
        (("env", "a.py"), ("env", "b.py"), "env a.py"),
        (("a.py", "a.yaml"), ("a.py", "b.yaml", "--lr=1"), "a.py a.yaml"),
        (("a.py", "a.yaml", "--lr=1"), ("a.py", "copy/a.yaml"), ""),
        (("a.py", "gone/a.yaml"), ("a.py", "b.yaml"), ""),
        (("a.py", "step-1.pt"), ("a.py", "step-2.pt"), ""),
        (("a.py", "train", "a.yaml"), ("a.py", "train", "b.yaml"), "a.py a.yaml"),
    ],
)
def test_another_script_is_another_run_and_other_arguments_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: tuple[str, ...], now: tuple[str, ...], other: str
) -> None:
    texts = {"a.py": "1", "b.py": "2", "c.py": "3", "gone/c.py": "4", "a.sh": "", "b.sh": ""}
    configs = {"a.yaml": "lr: 1", "b.yaml": "lr: 2", "copy/a.yaml": "lr: 1", "gone/a.yaml": "lr: 1"}
    others = {"copy/a.py": "1", "changed/a.py": "5", "step-1.pt": "\0", "step-2.pt": "\0\0"}
    for name, text in {**texts, **configs, **others}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    record = recorded_as(tmp_path, "--worker_num=1", *before)
    for name in ("gone/c.py", "gone/a.yaml"):
        (tmp_path / name).unlink()
    assert other_script(plan("--worker_num=1", *now).spec, record) == other
    assert other_script(plan("--worker_num=1", *now).spec, {}) == ""


def test_a_run_of_another_script_is_set_aside_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    """Its saves may have the new run's id, for both are of one job."""
    folder = tmp_path / "log"
    folder.mkdir()
    journal = JournalWriter(folder / FILE_NAME, next_seq=0, node=NODE, boot=BootId("b"))
    for event, step in Story(1).begins().killed(0).steps:
        journal.append(event, step)
    journal.close()
    write_record(folder, {"run_id": "job"})
    claimed = claim(folder, new_run(1), "job", lambda _: "a.py")
    assert (claimed.past, claimed.ended_run, claimed.boots) == (None, "job", ("b",))
    said: list[str] = []
    begin_anew(claimed, Resume.AUTO, said.append)
    assert (folder / "runs/job" / FILE_NAME).exists()
    assert said[0].startswith("run job was of another script (a.py), so this is a new run; ")
    (tmp_path / "b.py").touch()
    assert (
        of_this_run(plan("--worker_num=1", str(tmp_path / "b.py")).spec, claimed).recovery.resume
        is Resume.NEVER
    )


@pytest.mark.parametrize(
    ("story", "options", "back"),
    [
        (Story(2).begins().returned(0).returned(1).drained(), (), True),
        (Story(2).starts().found_nothing_whole(), (), True),
        (Story(2).begins().told_to_stop().killed(0, SIGTERM).killed(1, SIGTERM).drained(), (), False),
        (Story(2).begins().killed(1), (), False),
        (Story(2).begins().returned(0).returned(1).drained(), ("--restore_configs=never",), False),
    ],
)
def test_configurations_go_back_when_a_run_is_over_and_not_when_it_will_go_on(
    tmp_path: Path, story: Story, options: tuple[str, ...], back: bool
) -> None:
    ended(tmp_path)
    (tmp_path / "a.py").touch()
    rewrite = f"--rewrite={tmp_path}/train.yaml:pre_trained"
    words = ("--worker_num=2", f"--checkpoint_dir={tmp_path}", rewrite, *options, f"{tmp_path}/a.py")
    said: list[str] = []
    at_end(plan(*words).spec, tmp_path / "log", story.state, said.append)
    assert ((tmp_path / "train.yaml").read_text() == TRAIN) == back
    assert said == ([f"{tmp_path}/train.yaml is restored (--restore_configs)"] if back else [])
    assert (tmp_path / ".train.yaml.faultrun.before").exists() != back
