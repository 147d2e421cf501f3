"""A start that is killed while it makes room for itself is repeated by the next one; no old value stays."""

from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from faultrun.cli.run.outlets import without_secrets
from faultrun.cli.run.start_and_end import asked_otherwise, begin_anew
from faultrun.configs.apply import apply
from faultrun.journal.append import FILE_NAME, JournalWriter
from faultrun.journal.codec import encode
from faultrun.journal.logdir import Claimed, write_record
from faultrun.model.edit import Setting
from faultrun.model.spec.run_spec import Resume
from faultrun.model.topology import BootId, RunId
from support.asking import plan
from support.machine.processes import killed_at_change
from support.stories.story import NODE, Story

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
def test_killed_at_any_change_no_checkpoint_of_the_run_before_stays_in_a_configuration(
    tmp_path: Path,
) -> None:
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


def test_a_record_that_cannot_be_read_tells_of_no_change(script: str, tmp_path: Path) -> None:
    claimed = Claimed(path=tmp_path, past=None, run_id="r")
    for text in ("", "{}", '{"spec": []}', '{"spec": {"topology": {"nodes": [{"slots": "x"}]}}}'):
        (tmp_path / "run.json").write_text(text)
        assert asked_otherwise(claimed, plan("--worker_num=1", script).spec, RunId("r")) == ""


def test_a_node_that_goes_on_with_another_run_than_the_others_look_for_says_so(
    script: str, tmp_path: Path
) -> None:
    several = ("--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=etcd", "--rdzv-endpoint=127.0.0.1:2379")
    spec = plan(*several, "--rdzv-id=job42", script).spec
    claimed = Claimed(path=tmp_path, past=None, run_id="job41")
    said = asked_otherwise(claimed, spec, spec.run_id)
    assert said.startswith("; the command names run job42, and nodes with a new --log_dir look for that: ")
    assert "--rdzv-id=job41 on all nodes goes on with this run, --log_dir=OTHER here begins job42" in said
    assert asked_otherwise(replace(claimed, run_id="job42"), spec, spec.run_id) == ""
    alone = plan("--worker_num=1", "--run_id=job42", script).spec
    assert asked_otherwise(claimed, alone, alone.run_id) == "", "whoever is alone misses nobody"
