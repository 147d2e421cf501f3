"""Files that the real MindSpore wrote: what we read is what it reads, and what we call whole it loads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from faultrun.checkpoints.formats.mindspore.ckpt_records import outline_of
from faultrun.checkpoints.reading import opened
from faultrun.core.recovery.choose import Chosen
from faultrun.core.recovery.need import Need, World
from faultrun.model.checkpoint import Depth, Entry, Kind
from support.checkpoints.catalogs import catalog_of, reasons, survey_of
from support.checkpoints.ckpt_bytes import save
from support.places import TESTS

pytestmark = [pytest.mark.mindspore, pytest.mark.slow]

WRITER = TESTS / "support" / "checkpoints" / "mindspore_saves.py"
Seen = dict[str, dict[str, float | str]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Seen]:
    """One real training process; its files, and what ``ms.load_checkpoint`` finds in each."""
    root = tmp_path_factory.mktemp("mindspore")
    (root / "hand").mkdir()
    told = subprocess.run(
        [sys.executable, str(WRITER), str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=200,
    )
    return root, json.loads(told.stdout)


def by_name(root: Path) -> dict[str, Entry]:
    return {Path(entry.path).name: entry for entry in catalog_of(root).scan().entries}


def test_every_number_is_the_one_that_mindspore_reads(written: tuple[Path, Seen]) -> None:
    root, seen = written
    assert len(seen) > 25
    for name, values in seen.items():
        with opened(str(root / name)) as file:
            outline = outline_of(file)
        assert set(values) <= set(outline.sizes)
        for tag, number in outline.numbers.items():
            assert values[tag] == pytest.approx(number), (name, tag)


def test_what_mindspore_encrypts_is_not_torn_and_nobody_calls_it_whole(written: tuple[Path, Seen]) -> None:
    catalog = catalog_of(written[0] / "encrypted")
    verdicts = {Path(one.path).name: catalog.verify(one) for one in catalog.scan().entries}
    assert set(verdicts) == {f"{mode}-1_5.ckpt" for mode in ("AES-GCM", "AES-CBC", "SM4-CBC")}
    assert all(one.unverifiable and not one.whole for one in verdicts.values()), verdicts


def test_every_file_is_whole(written: tuple[Path, Seen]) -> None:
    root, seen = written
    for directory in {Path(name).parts[0] for name in seen}:
        catalog = catalog_of(root / directory)
        for entry in catalog.scan().entries:
            verdict = catalog.verify(entry)
            assert verdict.whole, (entry.path, verdict)
            assert (verdict.depth is Depth.CHECKSUM) == (directory == "crc")


def test_periodic_steps_count_on_over_epochs_with_and_without_appended_numbers(
    written: tuple[Path, Seen],
) -> None:
    root, _ = written
    for directory in ("bare", "appended"):
        steps = {name: entry.global_step for name, entry in by_name(root / directory).items()}
        assert steps["net-1_5.ckpt"] == 5
        assert steps["net-2_5.ckpt"] == 15


def test_an_exception_save_is_a_gasp_with_the_optimizers_step(written: tuple[Path, Seen]) -> None:
    root, seen = written
    assert seen["gasp/net-3_3_breakpoint.ckpt"]["step_num"] == 3, (
        "step within the epoch, unlike periodic files"
    )
    entry = by_name(root / "gasp")["net-3_3_breakpoint.ckpt"]
    assert (entry.kind, entry.epoch, entry.step_in_epoch, entry.global_step) == (Kind.GASP, 3, 3, 23)
    found = survey_of(root / "gasp", Need(world=World(size=2)))
    assert isinstance(found.choice, Chosen)
    assert found.choice.point.path == entry.path


def test_a_resumed_session_counts_from_zero_and_still_wins(written: tuple[Path, Seen]) -> None:
    root, seen = written
    assert seen["resumed/net_1-5_10.ckpt"]["epoch_num"] == 5
    assert seen["resumed/net_1-5_10.ckpt"]["step_num"] == 20, "the session's own count"
    found = survey_of(root / "resumed")
    assert isinstance(found.choice, Chosen)
    assert (Path(found.choice.point.path).name, found.choice.point.global_step) == ("net_1-5_10.ckpt", 50)


def test_a_real_file_cut_at_a_record_border_loads_in_mindspore_and_is_refused_by_us(
    written: tuple[Path, Seen], tmp_path: Path
) -> None:
    root, _ = written
    whole = (root / "appended/net-1_10.ckpt").read_bytes()
    with opened(str(root / "appended/net-1_10.ckpt")) as file:
        border = outline_of(file).offsets["epoch_num"]
    save(tmp_path / "net-1_5.ckpt", (root / "appended/net-1_5.ckpt").read_bytes(), mode=0o400)
    torn = save(tmp_path / "net-1_10.ckpt", whole[:border], mode=0o400)
    load = f"import mindspore as ms; print(len(ms.load_checkpoint({str(torn)!r})))"
    told = subprocess.run([sys.executable, "-c", load], capture_output=True, check=True, timeout=120)
    assert int(told.stdout.split()[-1]) > 0, "MindSpore loads what is left of it without an error"
    found = survey_of(tmp_path)
    assert isinstance(found.choice, Chosen)
    assert Path(found.choice.point.path).name == "net-1_5.ckpt"
    assert "goes on with 'epoch_num'" in reasons(found, tmp_path)["net-1_10.ckpt"]
