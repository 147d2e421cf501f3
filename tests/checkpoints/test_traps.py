"""The traps that every "newest file wins" walks into, each by name, from real directories to a choice."""

import struct
import threading
from pathlib import Path

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.find import scan_and_choose
from faultrun.checkpoints.registry import Registry
from faultrun.core.recovery.choose import Chosen, NoneUsable, NothingFound
from faultrun.core.recovery.need import Doubt, Need, World
from support.checkpoints.catalogs import MINDSPORE, catalog_of, reasons, survey_of
from support.checkpoints.ckpt_bytes import WEIGHTS, ckpt, records, save


def chosen(root: Path, need: Need | None = None) -> str:
    choice = survey_of(root, need).choice
    assert isinstance(choice, Chosen), choice
    return str(Path(choice.point.path).relative_to(root))


def test_trap_cut_exactly_at_a_record_border_with_a_sibling_at_an_older_step(tmp_path: Path) -> None:
    """MindSpore loads such a file without an error and with parameters missing."""
    save(tmp_path / "net-1_10.ckpt", ckpt(1, 10))
    save(tmp_path / "net-1_20.ckpt", b"".join(records(WEIGHTS))[: -len(records(WEIGHTS)[-1])])
    found = survey_of(tmp_path)
    assert chosen(tmp_path) == "net-1_10.ckpt"
    assert reasons(found, tmp_path) == {
        "net-1_20.ckpt": "cut after record 2 of 5: net-1_10.ckpt goes on with 'fc.bias'"
    }


def test_trap_cut_at_a_record_border_with_another_ranks_file_as_the_only_sibling(tmp_path: Path) -> None:
    save(tmp_path / "rank_0/net-1_20.ckpt", b"".join(records(WEIGHTS)), mode=0o400)
    save(tmp_path / "rank_1/net-1_20.ckpt", ckpt(1, 20))
    found = survey_of(tmp_path, Need(world=World(size=2)))
    assert chosen(tmp_path, Need(world=World(size=2))) == "rank_1/net-1_20.ckpt"
    assert reasons(found, tmp_path) == {
        "rank_0/net-1_20.ckpt": "cut after record 3 of 5: net-1_20.ckpt goes on with 'epoch_num'"
    }


def test_trap_exception_save_after_a_failed_collective_is_mislabelled_by_one_step(tmp_path: Path) -> None:
    save(tmp_path / "net-1_20.ckpt", ckpt(1, 20, global_step=20))
    save(tmp_path / "net-1_25_breakpoint.ckpt", ckpt(1, 25, global_step=24))
    found = survey_of(tmp_path)
    assert chosen(tmp_path) == "net-1_20.ckpt"
    assert reasons(found, tmp_path)["net-1_25_breakpoint.ckpt"] == (
        "labelled step 25, its optimizer counts 24: saved in the middle of an update"
    )


def test_trap_exception_save_after_a_failed_collective_is_half_updated_under_the_right_label(
    tmp_path: Path,
) -> None:
    """Its bytes show nothing; only the supervisor knows that a rank had died before it was written."""
    save(tmp_path / "net-1_20.ckpt", ckpt(1, 20, global_step=20))
    save(tmp_path / "net-1_25_breakpoint.ckpt", ckpt(1, 25, global_step=25))
    need = Need(world=World(size=1), doubt=Doubt(after_fault=True))
    assert chosen(tmp_path, need) == "net-1_20.ckpt"
    assert chosen(tmp_path) == "net-1_25_breakpoint.ckpt", "after a plain SIGTERM it is good"


def test_trap_step_num_is_global_in_periodic_and_in_epoch_in_breakpoint_files(tmp_path: Path) -> None:
    save(tmp_path / "net-1_40.ckpt", ckpt(1, 40, global_step=40))
    save(tmp_path / "net-2_15_breakpoint.ckpt", ckpt(2, 15, global_step=55))
    assert chosen(tmp_path) == "net-2_15_breakpoint.ckpt"


def test_trap_a_stale_breakpoint_of_an_earlier_incident_does_not_beat_a_newer_periodic(
    tmp_path: Path,
) -> None:
    save(tmp_path / "net-2_15_breakpoint.ckpt", ckpt(2, 15, global_step=55))
    save(tmp_path / "net_1-3_40.ckpt", ckpt(3, 120, global_step=120), mtime_s=1.0)
    assert chosen(tmp_path) == "net_1-3_40.ckpt"


def test_trap_names_restart_at_epoch_1_while_contents_go_on(tmp_path: Path) -> None:
    save(tmp_path / "net-9_100.ckpt", ckpt(9, 900))
    save(tmp_path / "net_1-1_100.ckpt", ckpt(10, 1000), mtime_s=1.0)
    assert chosen(tmp_path) == "net_1-1_100.ckpt"


def test_trap_prefix_clashes_are_not_siblings(tmp_path: Path) -> None:
    """``resnet512`` has more layers than ``resnet``: that does not make resnet's file a cut one."""
    save(tmp_path / "resnet512-1_5.ckpt", b"".join(records({**WEIGHTS, "extra": [1.0]})), mode=0o400)
    save(tmp_path / "resnet-1_9.ckpt", b"".join(records(WEIGHTS)), mode=0o400, mtime_s=10**9)
    save(tmp_path / "resnet_1-1_4.ckpt", b"".join(records(WEIGHTS)), mode=0o400, mtime_s=10**9)
    assert chosen(tmp_path) == "resnet-1_9.ckpt"


def test_trap_a_file_that_grows_while_it_is_looked_at(tmp_path: Path) -> None:
    """Its bytes are a complete file at every look; only waiting shows that it is not."""
    data = ckpt(1, 20)
    save(tmp_path / "net-1_10.ckpt", ckpt(1, 10))
    growing = tmp_path / "net-1_20.ckpt"
    growing.write_bytes(data)
    written, done = threading.Event(), threading.Event()

    def write_on() -> None:
        while not done.wait(0.01):
            with growing.open("ab") as file:
                file.write(data)
            written.set()

    writer = threading.Thread(target=write_on)
    writer.start()
    assert written.wait(10)
    catalog = Catalog([str(tmp_path)], settle_s=0.2, registry=Registry(formats=MINDSPORE))
    try:
        found = scan_and_choose(catalog, Need(world=World(size=1)))
    finally:
        done.set()
        writer.join()
    assert isinstance(found.choice, Chosen)
    assert Path(found.choice.point.path).name == "net-1_10.ckpt"


def test_trap_a_newer_file_of_another_world_size(tmp_path: Path) -> None:
    for rank in range(8):
        save(tmp_path / f"rank_{rank}/net-5_100.ckpt", ckpt(5, 500))
    for rank in range(4):
        save(tmp_path / f"rank_{rank}/net-4_100.ckpt", ckpt(4, 400))
    found = survey_of(tmp_path, Need(world=World(size=4)))
    assert isinstance(found.choice, Chosen)
    assert found.choice.point.global_step == 400
    assert "written by more than 4 ranks" in reasons(found, tmp_path)["rank_0/net-5_100.ckpt"]


def test_trap_files_of_another_run_that_were_there_before(tmp_path: Path) -> None:
    save(tmp_path / "net-9_100.ckpt", ckpt(9, 900))
    memory = tmp_path / "checkpoints.jsonl"
    fresh = catalog_of(tmp_path, memory=memory)
    fresh.leave_alone(fresh.scan().entries)
    again = catalog_of(tmp_path, memory=memory)
    found = scan_and_choose(again, Need(world=World(size=1)))
    assert isinstance(found.choice, NothingFound)
    assert [Path(entry.path).name for entry in found.scan.left_alone] == ["net-9_100.ckpt"]
    save(tmp_path / "net-1_1.ckpt", ckpt(1, 1))
    assert isinstance((ours := scan_and_choose(again, Need(world=World(size=1)))).choice, Chosen)
    assert Path(ours.choice.point.path).name == "net-1_1.ckpt"


def test_trap_read_only_0400_files_are_read(tmp_path: Path) -> None:
    save(tmp_path / "net-1_10.ckpt", ckpt(1, 10), mode=0o400)
    assert chosen(tmp_path) == "net-1_10.ckpt"


def test_trap_a_symlink_out_of_the_root(tmp_path: Path) -> None:
    outside = save(tmp_path / "elsewhere/net-9_9.ckpt", ckpt(9, 99))
    root = tmp_path / "ckpt"
    save(root / "net-1_10.ckpt", ckpt(1, 10))
    (root / "net-9_9.ckpt").symlink_to(outside)
    (root / "data").symlink_to(outside.parent)
    found = survey_of(root)
    assert chosen(root) == "net-1_10.ckpt"
    assert reasons(found, root) == {
        "net-9_9.ckpt": f"is a link out of the checkpoint directory, to {outside}"
    }


def test_trap_a_symlink_within_the_root_is_no_second_checkpoint_and_loops_end(tmp_path: Path) -> None:
    save(tmp_path / "net-1_10.ckpt", ckpt(1, 10))
    (tmp_path / "latest.ckpt").symlink_to("net-1_10.ckpt")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert len(survey_of(tmp_path).scan.entries) == 1


def test_trap_links_in_a_circle_hide_nothing_that_lies_beside_them(tmp_path: Path) -> None:
    save(tmp_path / "net-1_10.ckpt", ckpt(1, 10))
    (tmp_path / "latest.ckpt").symlink_to("newest.ckpt")
    (tmp_path / "newest.ckpt").symlink_to("latest.ckpt")
    assert chosen(tmp_path) == "net-1_10.ckpt"
    assert survey_of(tmp_path).scan.refused == ()


def test_trap_a_file_that_is_cut_in_its_first_words_says_how_long_it_is(tmp_path: Path) -> None:
    header = struct.pack("<4s5H3I2H", b"PK\x03\x04", *[0] * 8, 16, 40)
    save(tmp_path / "step_10.pt", header + b"step_10/data.pkl" + bytes(4))
    (refusal,) = scan_and_choose(Catalog([str(tmp_path)]), Need(world=World(size=1))).refused
    assert refusal.why == "has 50 bytes, too few for what it should begin or end with"


def test_trap_a_link_is_the_only_name_that_tells_a_format(tmp_path: Path) -> None:
    """The layout of Hugging Face's cache, and of writers that flip a link when their file is complete."""
    save(tmp_path / "net-1_10.ckpt", ckpt(1, 10))
    save(tmp_path / "blobs/0a1b2c3d", ckpt(1, 20))
    save(tmp_path / ".hidden/7/net-1_30.ckpt", ckpt(1, 30))
    (tmp_path / "net-1_20.ckpt").symlink_to("blobs/0a1b2c3d")
    (tmp_path / "newest.ckpt").symlink_to("net-1_20.ckpt")
    (tmp_path / "gone.ckpt").symlink_to("blobs/absent")
    assert sorted(Path(one.path).name for one in survey_of(tmp_path).scan.entries) == [
        "net-1_10.ckpt", "net-1_20.ckpt",
    ]  # fmt: skip
    assert chosen(tmp_path) == "net-1_20.ckpt"
    for link in ("current", "again"):
        (tmp_path / link).symlink_to(".hidden/7")
    (tmp_path / ".hidden/7/loop").symlink_to(".")
    assert len(survey_of(tmp_path).scan.entries) == 3, "what is hidden is listed under one link to it"
    assert chosen(tmp_path).endswith("/net-1_30.ckpt")


def test_trap_a_link_that_is_flipped_while_its_target_is_verified(tmp_path: Path) -> None:
    save(tmp_path / "blobs/old", ckpt(1, 10))
    save(tmp_path / "blobs/new", ckpt(1, 20))
    link = tmp_path / "state.ckpt"
    link.symlink_to("blobs/old")
    catalog = catalog_of(tmp_path)
    (entry,) = catalog.scan().entries
    link.unlink()
    link.symlink_to("blobs/new")
    assert catalog.verify(entry).why == "changed since it was listed: still being written"
    assert [one.global_step for one in catalog.scan().entries] == [20]


def test_trap_a_0_byte_file(tmp_path: Path) -> None:
    save(tmp_path / "net-1_10.ckpt", ckpt(1, 10))
    save(tmp_path / "net-1_20.ckpt", b"")
    found = survey_of(tmp_path)
    assert chosen(tmp_path) == "net-1_10.ckpt"
    assert reasons(found, tmp_path) == {"net-1_20.ckpt": "is empty"}


def test_trap_clocks_that_jumped(tmp_path: Path) -> None:
    save(tmp_path / "net-1_10.ckpt", ckpt(1, 10), mtime_s=4_000_000_000)
    save(tmp_path / "net-1_20.ckpt", ckpt(1, 20), mtime_s=0)
    assert chosen(tmp_path) == "net-1_20.ckpt"


def test_trap_an_unfinished_name_is_listed_but_is_no_reason_to_give_up(tmp_path: Path) -> None:
    """The very first save was killed: there never was a checkpoint, so starting from zero hides nothing."""
    save(tmp_path / "net-1_10.tmp", ckpt(1, 10))
    (tmp_path / "step_10").mkdir()
    found = survey_of(tmp_path)
    assert isinstance(found.choice, NothingFound)
    assert "never finished" in reasons(found, tmp_path)["net-1_10.tmp"]
    assert reasons(found, tmp_path)["step_10"] == "an empty folder"


def test_trap_a_torn_first_file_is_a_reason_to_give_up(tmp_path: Path) -> None:
    save(tmp_path / "net-1_10.ckpt", ckpt(1, 10)[:50])
    assert isinstance(survey_of(tmp_path).choice, NoneUsable)


def test_trap_best_acc_is_not_the_newest(tmp_path: Path) -> None:
    """The worked example of the ResNet layout: globbing ``*.ckpt`` by time resumes from ``best_acc``."""
    root = tmp_path / "ckpt_0"
    save(root / "resnet-5_625.ckpt", ckpt(5, 3125))
    save(root / "resnet-10_625.ckpt", ckpt(10, 6250))
    save(root / "resnet-11_40_breakpoint.ckpt", ckpt(11, 40))
    save(root / "best_acc.ckpt", ckpt(None, None), mode=0o400, mtime_s=4_000_000_000)
    save(root / "resnet-12_1.tmp", ckpt(12, 1))
    assert chosen(root) == "resnet-11_40_breakpoint.ckpt"
    save(root / "resnet-11_40_breakpoint.ckpt", ckpt(11, 40)[:-9])
    assert chosen(root) == "resnet-10_625.ckpt"


def test_trap_a_hardlinked_or_renamed_file_is_judged_by_what_it_is_now(tmp_path: Path) -> None:
    torn = save(tmp_path / "net-1_20.ckpt", ckpt(1, 20)[:-5])
    save(tmp_path / "net-1_10.ckpt", ckpt(1, 10))
    assert chosen(tmp_path) == "net-1_10.ckpt"
    save(tmp_path / "fresh", ckpt(1, 20)).replace(torn)
    assert chosen(tmp_path) == "net-1_20.ckpt"
