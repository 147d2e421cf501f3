"""Folders as transformers, accelerate, Lightning and torch write them today; each is torn in every file."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.checkpoints.find import Findings
from faultrun.checkpoints.registry import builtin_formats
from faultrun.core.recovery.choose import Chosen
from support.checkpoints.catalogs import survey_of
from support.lightly import lightly
from support.machine.free_port import free_port
from support.places import TESTS

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.timeout(240)]

WRITER = TESTS / "support" / "checkpoints" / "real_folders.py"
ALONE = {
    "trainer": "checkpoint-{step}",
    "trainer_sharded": "checkpoint-{step}",
    "trainer_model_only": "checkpoint-{step}",
    "accelerate": "checkpoints/checkpoint_{save}",
    "accelerate_registered": "checkpoints/checkpoint_{save}",
    "accelerate_fsdp": "checkpoint_{save}",
    "accelerate_fsdp_full": "checkpoint_{save}",
    "lightning": "epoch={epoch}-step={step}.ckpt",
    "dcp": "step-{step}",
    "hf_storage": "step-{step}",
}
BY_TWO = {
    "trainer_ranks": "checkpoint-{step}",
    "accelerate_ranks": "checkpoints/checkpoint_{save}",
    "lightning_sharded": "epoch={epoch}-step={step}.ckpt",
    "dcp_ranks": "step-{step}",
}
LAYOUTS = {**ALONE, **BY_TWO}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All layouts, written at once: once by one process, once by two ranks."""
    root = tmp_path_factory.mktemp("real")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FAULTRUN_")}
    environ |= {
        "HF_HUB_OFFLINE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        **lightly(),
    }
    ranks = [
        {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        for rank in (0, 1)
    ]
    command = [sys.executable, "-W", "ignore", str(WRITER), str(root)]
    with ExitStack() as ended:
        writers = []
        for more in ({}, *ranks):
            writer = subprocess.Popen(
                command, env=environ | more, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            writers.append(ended.enter_context(writer))
            ended.callback(writer.kill)
        for writer in writers:
            _, said = writer.communicate(timeout=200)
            assert writer.returncode == 0, said[-3000:]
    return root


def survey(root: Path) -> Findings:
    return survey_of(root, formats=builtin_formats())


def chosen(found: Findings, root: Path) -> str:
    assert isinstance(found.choice, Chosen), found.choice
    return os.path.relpath(found.choice.point.path, root)


def place(layout: str, step: int) -> str:
    return LAYOUTS[layout].format(step=step, save=step // 2 - 1, epoch=int(step == 6))


def copied(written: Path, layout: str, root: Path) -> Path:
    """The series without what Lightning writes of the last one once more."""
    shutil.copytree(written / layout, root)
    last = root / "last.ckpt"
    if last.is_dir():
        shutil.rmtree(last)
    last.unlink(missing_ok=True)
    return root


def files_of(path: Path) -> list[Path]:
    return sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_every_save_is_one_candidate_with_its_true_step_and_whole(
    written: Path, tmp_path: Path, layout: str
) -> None:
    root = copied(written, layout, tmp_path / "run")
    if layout == "hf_storage":
        shutil.rmtree(root / "apart")
    found = survey(root)
    steps = {os.path.relpath(one.path, root): one.global_step for one in found.scan.entries}
    wanted = {place(layout, step): step for step in (2, 4, 6)}
    if layout.startswith("dcp"):
        wanted["step-8"] = 8
    assert steps == wanted
    assert chosen(found, root) == place(layout, 6)


@pytest.mark.parametrize("way", ["lost", "cut", "emptied"])
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_the_newest_without_one_of_its_files_is_refused_by_the_files_name(
    written: Path, tmp_path: Path, layout: str, way: str
) -> None:
    for file in files_of(written / layout / place(layout, 6)):
        root = copied(written, layout, tmp_path / "run")
        torn = root / file.relative_to(written / layout)
        if way == "lost":
            torn.unlink()
        else:
            os.truncate(torn, torn.stat().st_size // 2 if way == "cut" else 0)
        found = survey(root)
        assert chosen(found, root) == place(layout, 4), f"{torn} {way}"
        whys = [one.why for one in found.refused if Path(one.path) == root / place(layout, 6)]
        assert file.suffix == ".ckpt" or any(told(file.name, why) for why in whys), f"{torn} {way}: {whys}"
        shutil.rmtree(root)


def told(name: str, why: str) -> bool:
    """Whether the reason names the file, or what it is for."""
    role = "file of the model" if "model" in name else "has the random states"
    return name in why or role in why


def test_a_model_that_was_exported_at_the_end_is_no_checkpoint(written: Path) -> None:
    found = survey(written / "trainer")
    assert (written / "trainer" / "trainer_state.json").exists()
    assert [one.why for one in found.scan.unfinished] == [
        "it is a model that was exported: it has no optimizer and no random states"
    ]


@pytest.mark.parametrize("layout", ["dcp", "dcp_ranks"])
def test_torchtitans_last_save_of_the_model_alone_is_refused_beside_others(
    written: Path, layout: str
) -> None:
    found = survey(written / layout)
    assert [(Path(one.path).name, one.why) for one in found.refused] == [
        ("step-8", "it holds the model alone, step-6 an optimizer too")
    ]


def test_an_export_in_shards_is_refused_beside_checkpoints_with_an_optimizer(
    written: Path, tmp_path: Path
) -> None:
    root = tmp_path / "run"
    shutil.copytree(written / "dcp" / "step-2", root / "step-2")
    shutil.copytree(written / "hf_storage" / "step-6", root / "step-6")
    found = survey(root)
    assert chosen(found, root) == "step-2"
    assert [one.why for one in found.refused] == ["it holds the model alone, step-2 an optimizer too"]


def test_a_series_of_models_alone_is_what_its_writer_wanted(written: Path, tmp_path: Path) -> None:
    root = tmp_path / "run"
    shutil.copytree(written / "dcp" / "step-8", root / "step-8")
    assert chosen(survey(root), root) == "step-8"
    root = written / "trainer_model_only"
    (verdict,) = survey(root).verdicts.values()
    assert verdict.why.endswith("the model only, as save_only_model has it")


def test_a_lone_first_checkpoint_is_judged_by_what_it_has(written: Path, tmp_path: Path) -> None:
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "model.safetensors"):
        root = tmp_path / name
        shutil.copytree(written / "trainer" / "checkpoint-2", root / "checkpoint-2")
        (root / "checkpoint-2" / name).unlink()
        assert not isinstance(survey(root).choice, Chosen), name


def test_lightnings_last_is_refused_in_the_middle_of_being_written_anew(
    written: Path, tmp_path: Path
) -> None:
    root = tmp_path / "run"
    shutil.copytree(written / "lightning_sharded" / "last.ckpt", root / "last.ckpt")
    assert chosen(survey(root), root) == "last.ckpt"
    meta = root / "last.ckpt" / "meta.pt"
    before = meta.stat().st_mtime_ns - 60 * 10**9
    os.utime(meta, ns=(before, before))
    (why,) = [one.why for one in survey(root).refused]
    assert why == "its meta.pt is older than its .metadata: a later save was not finished"


def test_a_link_to_the_last_file_is_not_a_second_checkpoint(written: Path, tmp_path: Path) -> None:
    root = copied(written, "lightning", tmp_path / "run")
    (root / "last.ckpt").symlink_to("epoch=1-step=6.ckpt")
    assert len(survey(root).scan.entries) == 3


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_whatever_bytes_of_the_newest_are_torn_what_is_chosen_still_loads_as_it_was(
    written: Path, data: st.DataObject
) -> None:
    """Overwritten bytes show where a format has checksums, another length wherever the format says one."""
    layout = data.draw(st.sampled_from(sorted(LAYOUTS)))
    file = data.draw(st.sampled_from(files_of(written / layout / place(layout, 6))))
    whole = file.read_bytes()
    begin = data.draw(st.integers(0, len(whole) - 1))
    end = data.draw(st.integers(begin + 1, len(whole)))
    how = data.draw(st.sampled_from(["cut out", "zeros", "ones", "cut off"]))
    fill = {"zeros": bytes(end - begin), "ones": b"\xff" * (end - begin)}.get(how, b"")
    torn = whole[:begin] + fill + (b"" if how == "cut off" else whole[end:])
    with TemporaryDirectory() as name:
        root = copied(written, layout, Path(name) / "run")
        (root / file.relative_to(written / layout)).write_bytes(torn)
        taken = chosen(survey(root), root)
        if taken == place(layout, 6):
            assert len(torn) == len(whole) or is_json(torn), f"{file} {how} {begin}-{end}"
            assert torn == whole or loads_the_same(file.name, whole, torn), f"{file} {how} {begin}-{end}"


def is_json(data: bytes) -> bool:
    """Whether these are an object of JSON: without a word cut out of the middle it is one still."""
    try:
        return isinstance(json.loads(data), dict)
    except ValueError:
        return False


def loads_the_same(name: str, whole: bytes, torn: bytes) -> bool:
    """Whether the format has no checksum, or what changed is none of its contents."""
    if name.endswith((".safetensors", ".json")) or name == ".metadata":
        return True
    import io

    import torch

    def contents(data: bytes) -> dict[str, bytes]:
        """As torch reads them; other readers are stricter about fields that nobody uses."""
        archive: Any = torch._C.PyTorchFileReader(io.BytesIO(data))
        return {one: archive.get_record(one) for one in archive.get_all_records()}

    if name.endswith(".distcp"):  # archives one after another: only paddings may differ
        return torn.count(b"PK\x05\x06") == whole.count(b"PK\x05\x06")
    return contents(whole) == contents(torn)
