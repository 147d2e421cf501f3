"""Which files are one save, by their names and by what was seen: layouts as training codes write them."""

import io
import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.find import further, scan_and_choose
from faultrun.core.recovery.choose import Chosen
from faultrun.core.recovery.common_point import common_point
from faultrun.core.recovery.need import Disks, Need, World
from faultrun.model.observed.node_fact import NodeFact, NodeJoined
from faultrun.model.observed.saves import SavesSeen, SeenSave
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology

pytestmark = [pytest.mark.torch, pytest.mark.slow]

Layout = Callable[[int], tuple[str, ...]]
LAYOUTS: dict[str, Layout] = {
    "a folder a step": lambda n: (f"step_{n}/model.pt", f"step_{n}/optimizer.pt"),
    "encoder and decoder": lambda n: (f"step_{n}/encoder.pt", f"step_{n}/decoder.pt"),
    "numbered parts in a folder": lambda n: (f"step_{n}/encoder1.pt", f"step_{n}/encoder2.pt"),
    "a folder in a folder": lambda n: (f"step_{n}/weights/model.pt", f"step_{n}/optim/adam.pt"),
    "a bare number": lambda n: (f"{n:06d}/model.pt", f"{n:06d}/opt.pt"),
    "by epoch": lambda n: (f"netG_epoch_{n}.pth", f"netD_epoch_{n}.pth"),
    "letters": lambda n: (f"G_{n}.pth", f"D_{n}.pth"),
    "no word": lambda n: (f"model{n:06d}.pt", f"ema_0.9999_{n:06d}.pt", f"opt{n:06d}.pt"),
    "flat, with an optimizer": lambda n: (f"model_step_{n}.pt", f"optimizer_step_{n}.pt"),
    "a set of three": lambda n: (f"step_{n}/unet.pt", f"step_{n}/text_encoder.pt", f"step_{n}/vae.pt"),
}


@cache
def whole() -> bytes:
    """A file of torch.save that tells no step."""
    import torch

    written = io.BytesIO()
    torch.save({"w": torch.zeros(100)}, written)
    return written.getvalue()


def written(root: Path, names: tuple[str, ...], *, lacks: int = -1, cuts: int = -1) -> None:
    told = re.findall(r"(?<!0\.)\d+", names[0].replace(",", ""))
    step = int(told[0]) if told else 0
    for at, name in enumerate(names):
        if at != lacks:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(whole()[: len(whole()) // 2] if at == cuts else whole())
            os.utime(path, (1e9 + step, 1e9 + step))


def chosen(root: Path, seen: SavesSeen | None = None, *, ranks: int = 1) -> tuple[str, str]:
    """The path that is handed over, below ``root``, and why what is newer is not."""
    catalog = Catalog([str(root)], settle_s=0.0)
    catalog.seen = SavesSeen() if seen is None else seen
    catalog.world_size = ranks
    found = scan_and_choose(catalog, Need(world=World(size=ranks)))
    assert isinstance(found.choice, Chosen), found.choice
    return str(Path(found.choice.point.path).relative_to(root)), "; ".join(
        f"{one.path}: {one.why}" for one in found.refused
    )


@pytest.mark.parametrize("disks", [("a", "b"), ("a", "a"), ("b", "b")])
def test_what_a_save_lacks_on_the_disk_of_one_node_is_no_point_for_all(
    tmp_path: Path, disks: tuple[str, str]
) -> None:
    """Each judges by what it sees: on disks of their own each its own, on a shared one all alike."""
    for root, lacks in (("a", -1), ("b", 1)):
        written(tmp_path / root, LAYOUTS["flat, with an optimizer"](10))
        written(tmp_path / root, LAYOUTS["flat, with an optimizer"](20), lacks=lacks)
    need, facts = Need(world=World(size=2), disks=Disks(several=True)), []
    for at, root in enumerate(disks):
        catalog = Catalog([str(tmp_path / root)], settle_s=0.0)
        found = scan_and_choose(catalog, need)
        assert isinstance(found.choice, Chosen)
        points = (found.choice.point, *further(catalog, found, need, most=3))
        node = NodeFact(node=NodeId(str(at)), boot=BootId("b"), at_s=0, incarnation=0, status=NodeJoined())
        facts.append(node.able_to_resume(points))
    seats = Topology(nodes=tuple(NodeSlots(node=one.node, slots=1) for one in facts))
    point = common_point(seats, facts)
    assert point is not None
    step = 20 if set(disks) == {"a"} else 10
    model = f"model_step_{step}.pt"
    assert [point.path_for(rank) for rank in (0, 1)] == [str(tmp_path / root / model) for root in disks]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("fault", ["lacks", "cuts"])
def test_a_save_of_which_a_file_is_missing_or_torn_is_passed_over_by_the_name_of_that_file(
    tmp_path: Path, layout: Layout, fault: str
) -> None:
    for number in range(len(layout(0))):
        root = tmp_path / str(number)
        written(root, layout(10))
        written(root, layout(20), **{fault: number})
        path, why = chosen(root)
        before, broken = layout(10), layout(20)[number]
        assert path in (*before, str(Path(before[0]).parent))
        names = (Path(broken).name, Path(layout(10)[number]).name, "no file of the model")
        only_an_optimizer = fault == "lacks" and broken == "model_step_20.pt"
        assert only_an_optimizer or any(name in why for name in names), why


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_newest_whole_save_is_chosen_though_every_tenth_has_more(tmp_path: Path, layout: Layout) -> None:
    for step in (10, 20, 30):
        written(tmp_path, layout(step))
        if step == 10:
            written(tmp_path, tuple(name.replace("model", "extra") for name in layout(step)[:1]))
    path, _ = chosen(tmp_path)
    assert path in (*layout(30), str(Path(layout(30)[0]).parent))


def test_best_and_last_belong_to_no_numbered_save(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        written(tmp_path, (f"step_{step}.pt", f"best_{step}.pt"))
    written(tmp_path, ("step_40.pt",))
    assert chosen(tmp_path)[0] == "step_40.pt", "it was no better"


def test_files_without_a_number_are_one_save_if_they_were_seen_to_be(tmp_path: Path) -> None:
    written(tmp_path, ("last.pth", "last_ema.pth"))
    files = tuple(str(tmp_path / name) for name in ("last.pth", "last_ema.pth"))
    seen = SavesSeen(saves=(SeenSave(files=files, step=10), SeenSave(files=files, step=20)))
    assert chosen(tmp_path, seen)[0] == "last.pth"


def test_a_number_that_is_not_surely_a_step_says_nothing(tmp_path: Path) -> None:
    for name in ("step_900.pt", "step_1,000.pt", "step_1,100.pt"):
        written(tmp_path, (name,))
    assert chosen(tmp_path)[0] == "step_1,100.pt"


def test_a_file_that_is_still_open_for_writing_has_its_save_passed_over_until_it_is_closed(
    tmp_path: Path,
) -> None:
    for step in (10, 20):
        written(tmp_path, (f"model_{step}.pt", f"replay_{step}.bin"))

    with (tmp_path / "replay_20.bin").open("wb") as growing:
        growing.write(b"more")
        growing.flush()
        meanwhile, why = chosen(tmp_path)
    afterwards, _ = chosen(tmp_path)

    assert (meanwhile, afterwards) == ("model_10.pt", "model_20.pt")
    assert "replay_20.bin, which is saved with it: a process still has it open for writing" in why


@pytest.mark.parametrize("folder", ["slot_{}", "{}"])
def test_a_folder_of_which_half_was_seen_written_again_is_passed_over(tmp_path: Path, folder: str) -> None:
    folders = [folder.format(one) for one in ("0", "1") if "slot" in folder] or ["A", "B"]
    names = [[f"{one}/G.pt", f"{one}/D.pt"] for one in folders]
    for files in names:
        written(tmp_path, tuple(files))
    order = [(names[0], 10), (names[1], 20), (names[0][:1], 30)]
    saves = [SeenSave(files=tuple(f"{tmp_path}/{one}" for one in files), step=step) for files, step in order]
    path, why = chosen(tmp_path, SavesSeen(saves=tuple(saves)))
    assert (path, "D.pt beside it is of the save before" in why) == (names[1][0], True)


@pytest.mark.parametrize("other", ["opt.pt", "trainer_state.pt"])
def test_a_model_is_passed_over_while_the_optimizer_beside_it_is_that_of_the_save_before(
    tmp_path: Path, other: str
) -> None:
    """Models are kept under numbers, and the one optimizer is written over at each save."""
    import torch

    written(tmp_path, ("model_10.pt", "model_20.pt", "model_30.pt", other))
    torch.save({"w": torch.zeros(400)}, tmp_path / other)
    os.utime(tmp_path / other, (1e9 + 20, 1e9 + 20))
    names = [("model_10.pt", other), ("model_20.pt", other), ("model_30.pt",)]
    saves = [
        SeenSave(files=tuple(str(tmp_path / one) for one in files), step=10 * nth)
        for nth, files in enumerate(names, 1)
    ]
    name, why = chosen(tmp_path, SavesSeen(saves=tuple(saves)))
    assert name == "model_20.pt"
    assert f"{other} beside it is of the save before" in why
    whole = replace(saves[-1], files=(*saves[-1].files, *saves[0].files[1:]))
    assert chosen(tmp_path, SavesSeen(saves=(*saves[:-1], whole)))[0] == "model_30.pt"


def test_a_file_of_a_rank_is_passed_over_while_another_of_that_rank_is_of_the_save_before(
    tmp_path: Path,
) -> None:
    """The file of one rank may serve all: of a save that this one has finished it counts."""
    models, others = (tuple(f"{name}_rank{rank}.pt" for rank in (0, 1)) for name in ("model", "optim"))
    written(tmp_path, (*models, *others))
    one, two, three, four = (str(tmp_path / name) for name in (*models, *others))
    saves = [SeenSave(files=(one, three), ranks=(two, four), step=step) for step in (10, 20)]
    saves.append(SeenSave(files=(one, three), ranks=(two,), step=30))
    name, why = chosen(tmp_path, SavesSeen(saves=tuple(saves)), ranks=2)
    assert (name, "optim_rank1.pt beside it is of the save before" in why) == (models[0], True)


@pytest.mark.parametrize(
    ("name", "steps", "chosen_step"),
    [("ckpt_{}.pt", {10: 10, 20: 20, 60: None}, 60), ("net_{}.pt", {1: 100, 2: 200, 5: None}, 500)],
)
def test_a_save_that_nobody_saw_is_as_new_as_its_number(
    tmp_path: Path, name: str, steps: dict[int, int | None], chosen_step: int
) -> None:
    for number in steps:
        written(tmp_path, (name.format(number),))
    seen = [(str(tmp_path / name.format(one)), one, step) for one, step in steps.items() if step is not None]
    catalog = Catalog([str(tmp_path)], settle_s=0.0)
    catalog.seen = SavesSeen(
        saves=tuple(SeenSave(files=(path,), number=one, step=at) for path, one, at in seen)
    )
    found = scan_and_choose(catalog, Need(world=World(size=1))).choice
    assert isinstance(found, Chosen)
    assert (Path(found.point.path).name, found.point.global_step) == (name.format(max(steps)), chosen_step)
