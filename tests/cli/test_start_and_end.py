"""A start that is killed while it makes room for itself is repeated by the next one; no old value stays."""

from functools import partial
from itertools import count
from pathlib import Path

from faultrun.cli.run.start_and_end import begin_anew
from faultrun.configs.apply import apply
from faultrun.journal.append import FILE_NAME, JournalWriter
from faultrun.journal.logdir import Claimed, write_record
from faultrun.model.edit import Setting
from faultrun.model.spec import Resume
from faultrun.model.topology import BootId
from support.processes import killed_at_change
from support.story import NODE, Story

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


def test_killed_at_any_change_no_checkpoint_of_the_run_before_stays_in_a_configuration(
    tmp_path: Path,
) -> None:
    for at in count(1):
        folder = tmp_path / str(at)
        claimed = ended(folder)
        code = killed_at_change(at, partial(begin, claimed))
        begin(claimed)
        assert (folder / "train.yaml").read_text() == TRAIN
        assert not (claimed.path / "original").exists()
        assert [path.name for path in (claimed.path / "runs").iterdir()] == ["before"]
        assert (claimed.path / "runs" / "before" / "original" / "index.json").exists()
        if code == 0:
            assert at > 20
            break
