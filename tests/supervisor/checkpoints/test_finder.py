"""Which checkpoint a run resumes from, by ``--resume`` and by what happened; real MindSpore files."""

import json
import os
import shutil
import time
import zlib
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.formats.faultrun_manifest import mark_finished
from faultrun.model.events import NothingWhole, PrepareFailed, RecoveryPointChosen
from faultrun.model.observed.saves import SavesSeen, SeenSave
from faultrun.model.spec.output import Logs
from faultrun.model.spec.run_spec import Recovery, Resume
from faultrun.model.topology import NodeId, NodeSlots, Topology
from faultrun.supervisor.checkpoints.finder import CheckpointFinder
from faultrun.supervisor.checkpoints.other_runs import OtherRuns
from faultrun.supervisor.checkpoints.saves_of_runs import SavesOfRuns
from faultrun.supervisor.reactor import RunClock
from faultrun.workers.forked_helper import Forked
from support.checkpoints.ckpt_bytes import ckpt, save
from support.checkpoints.surveys import AGAIN, FIRST, answers, finder, point_of, put, step_of
from support.stories.specs import a_spec
from support.stories.story import NODE


def test_nobody_looks_where_no_folder_was_named(tmp_path: Path) -> None:
    answer = finder(tmp_path, roots=0).find(AGAIN, 0.0)
    assert (point_of(answer), answer.incarnation) == (None, 2)


def test_a_folder_that_is_not_there_yet_holds_nothing(tmp_path: Path) -> None:
    assert point_of(finder(tmp_path).find(AGAIN, 0.0)) is None


@pytest.mark.parametrize("resume", [Resume.AUTO, Resume.NEVER])
def test_a_new_run_leaves_alone_what_it_finds_and_so_do_its_restarts(tmp_path: Path, resume: Resume) -> None:
    put(tmp_path, 10, 20)
    first = finder(tmp_path, resume)
    answer = answers(RecoveryPointChosen, first.find(FIRST, 0.0))
    assert (answer.point, answer.left_alone) == (None, 2)
    assert point_of(first.find(AGAIN, 0.0)) is None
    put(tmp_path, 5)
    assert step_of(first.find(AGAIN, 0.0)) == 5, "its own checkpoints are older by name and still its own"


def test_what_was_left_alone_stays_so_for_the_next_supervisor_of_the_run(tmp_path: Path) -> None:
    put(tmp_path, 10)
    finder(tmp_path).find(FIRST, 0.0)
    assert point_of(finder(tmp_path).find(AGAIN, 0.0)) is None


def test_a_new_run_that_cannot_note_what_it_leaves_alone_does_not_begin(tmp_path: Path) -> None:
    put(tmp_path, 10)
    (tmp_path / "left_alone.jsonl").mkdir()
    answer = answers(PrepareFailed, finder(tmp_path).find(FIRST, 0.0))
    assert answer.exit_code == 73
    assert answer.why.splitlines()[0] == "cannot note which older checkpoints this run leaves alone"


@pytest.mark.long
def test_a_run_that_had_checkpoints_does_not_begin_at_zero_when_none_is_to_be_seen(tmp_path: Path) -> None:
    put(tmp_path, 10)
    known = replace(AGAIN, expects=f"{tmp_path}/ckpt/net-1_10.ckpt")
    looking = finder(tmp_path)
    assert step_of(looking.find(known, 0.0)) == 10
    (tmp_path / "ckpt").rename(tmp_path / "unmounted")
    gone = answers(NothingWhole, looking.find(known, 0.0))
    assert gone.gone_s == 0.0
    assert gone.why.splitlines()[0] == f"the checkpoints in {tmp_path}/ckpt are gone"
    assert f"{tmp_path}/ckpt does not exist; this run had {known.expects}" in gone.why
    (tmp_path / "ckpt").mkdir()
    still = answers(NothingWhole, finder(tmp_path).find(known, 0.0))
    assert "nothing there is a checkpoint of this run" in still.why
    (tmp_path / "ckpt").rmdir()
    (tmp_path / "unmounted").rename(tmp_path / "ckpt")
    assert step_of(looking.find(known, 0.0)) == 10, "it came back"
    (tmp_path / "ckpt/net-1_10.ckpt").unlink()
    assert answers(NothingWhole, looking.find(known, 0.0)).gone_s == 0.0, "it is another absence"


@pytest.mark.parametrize("next_supervisor", [False, True])
def test_a_mount_that_drops_before_a_checkpoint_was_chosen_from_it_is_no_beginning(
    tmp_path: Path, next_supervisor: bool
) -> None:
    """The first life of a run made the folder; until its end nobody had looked."""
    shared, disk = tmp_path / "shared", tmp_path / "disk"
    disk.mkdir()
    with TemporaryDirectory(dir="/dev/shm") as mounted:
        if Path(mounted).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("/dev/shm is no file system of its own")
        shared.symlink_to(mounted)
        looking = in_shared(shared, tmp_path)
        assert step_of(looking.find(FIRST, 0.0)) is None
        save(shared / "ckpt/net-1_10.ckpt", ckpt(1, 10))
        shared.unlink()
        shared.symlink_to(disk)
        if next_supervisor:
            looking = in_shared(shared, tmp_path)
        assert answers(NothingWhole, looking.find(AGAIN, 0.0)).gone_s == 0.0
        shared.unlink()
        shared.symlink_to(mounted)
        assert step_of(looking.find(AGAIN, 0.0)) == 10, "it came back"


def test_a_folder_that_comes_as_a_mount_of_its_own_is_a_beginning(tmp_path: Path) -> None:
    looking = in_shared(Path("/dev"), tmp_path, name="shm/calm-heron")
    assert step_of(looking.find(FIRST, 0.0)) is None
    kept = tmp_path / "mounts.json"
    kept.write_text(kept.read_text().replace('"/dev/shm"', '"/dev"'))
    assert step_of(in_shared(Path("/dev"), tmp_path, name="shm/calm-heron").find(AGAIN, 0.0)) is None


def in_shared(shared: Path, log_dir: Path, name: str = "ckpt") -> CheckpointFinder:
    folder = str(shared / name)
    spec = a_spec(workers=2)
    spec = replace(
        spec, recovery=Recovery(checkpoint_dirs=(folder,)), logs=replace(spec.logs, log_dir=str(log_dir))
    )
    catalog = Catalog((folder,), memory_path=str(log_dir / "memory.jsonl"), settle_s=0.0)
    return CheckpointFinder(spec, catalog, RunClock())


def test_a_folder_that_nobody_can_read_may_be_read_later(tmp_path: Path) -> None:
    (tmp_path / "ckpt").symlink_to(tmp_path / "ckpt")
    for request in (FIRST, AGAIN):
        answer = answers(NothingWhole, finder(tmp_path).find(request, 0.0))
        assert answer.gone_s == 0.0
        assert "cannot be read: Too many levels of symbolic links" in answer.why


def gasp(path: Path, step: int, run_id: str = "calm-heron-3f7a") -> str:
    """A whole save of the SDK."""
    save(path, b"state")
    save(
        Path(f"{path}.manifest.json"),
        json.dumps(
            {
                "schema": 1, "path": path.name, "kind": "gasp", "step": step, "world_size": 2, "rank": 0,
                "replica_group": [0, 1], "size_bytes": 5, "digest": f"crc32:{zlib.crc32(b'state'):08x}",
                "run_id": run_id, "incarnation": 0, "node": "n",
            }
        ).encode(),
    )  # fmt: skip
    return str(path)


def test_where_ranks_said_that_they_save_their_saves_are_looked_for_and_nothing_else(tmp_path: Path) -> None:
    mine, foreign = gasp(tmp_path / "own/gasp.pt", 7), gasp(tmp_path / "own/other.pt", 900, "another-run")
    save(tmp_path / "own/net-9_900.ckpt", ckpt(9, 900))
    gasp(tmp_path / "own/below/gasp.pt", 800)
    looking = finder(tmp_path, roots=0)
    assert looking.read_back(mine).whole
    answer = answers(RecoveryPointChosen, looking.find(AGAIN, 0.0))
    assert (step_of(answer), [one.path for one in answer.refused]) == (7, [foreign])
    told = replace(AGAIN, folders=(str(tmp_path / "own"),))
    assert step_of(finder(tmp_path, roots=0).find(told, 0.0)) == 7, "the next supervisor knows it too"
    assert step_of(finder(tmp_path).find(told, 0.0)) == 7, "beside a --checkpoint_dir that holds nothing"


def test_saves_of_a_run_of_that_name_are_gone_on_from_until_it_has_ended_well(tmp_path: Path) -> None:
    """By a pod that was rescheduled without its log_dir; not by a job that was created anew."""
    gasp(tmp_path / "ckpt/rank_0/gasp.pt", 7)
    gasp(tmp_path / "ckpt/rank_0/other.pt", 9, "another-run")
    assert step_of(finder(tmp_path).find(FIRST, 0.0)) == 7
    assert mark_finished([f"{tmp_path}/ckpt"], [], "calm-heron-3f7a") == []
    answer = answers(RecoveryPointChosen, finder(tmp_path).find(FIRST, 0.0))
    assert (answer.point, answer.left_alone) == (None, 1), "what is another run's was left alone before"
    (tmp_path / "left_alone.jsonl").unlink()
    assert step_of(finder(tmp_path, Resume.ALWAYS).find(FIRST, 0.0)) == 9, "who wants any gets any"


def test_beside_another_run_only_what_says_whose_it_is_is_resumed_from(tmp_path: Path) -> None:
    put(tmp_path, 10)
    looking = finder(tmp_path)
    alone = looking.find(AGAIN, 0.0)
    assert step_of(alone) == 10
    Forked(lambda: OtherRuns([f"{tmp_path}/ckpt"], "another").others(), keep=()).end(60)
    put(tmp_path, 900)
    opened = replace(AGAIN, opened=(f"{tmp_path}/ckpt/net-1_900.ckpt",))
    refused = answers(NothingWhole, looking.find(opened, 0.0))
    assert "may be another run's: run another saves there too" in refused.why
    assert refused.refused[0].path in opened.opened
    assert "opened" not in refused.refused[0].why, "the other run may have read it"
    assert "a --checkpoint_dir for each run" in refused.why
    gasp(tmp_path / "ckpt/rank_0/gasp.pt", 7)
    answer = answers(RecoveryPointChosen, looking.find(AGAIN, 0.0))
    assert (step_of(answer), answer.neighbours) == (7, ("run another",))


def test_what_was_saved_while_another_run_was_not_there_is_our_own(tmp_path: Path) -> None:
    dirs, spec = (
        (f"{tmp_path}/ckpt",),
        replace(a_spec(), recovery=Recovery(checkpoint_dirs=(f"{tmp_path}/ckpt",))),
    )
    neighbours = OtherRuns(dirs, spec.run_id)
    lists = SavesOfRuns(dirs, neighbours, spec.command.script)

    def resumes_after(step: int) -> int | None:
        put(tmp_path, step)
        files = [f"{tmp_path}/ckpt/net-1_{one}.ckpt" for one in range(10, step + 1, 10)]
        os.utime(files[-1], (time.time() + step - 25,) * 2)  # clocks tick in milliseconds
        lists.note(SavesSeen(saves=tuple(SeenSave(files=(path,)) for path in files)))
        looking = CheckpointFinder(spec, Catalog(dirs, settle_s=0.0), RunClock(), neighbours=neighbours)
        return step_of(looking.find(AGAIN, 0.0))

    assert resumes_after(10) == 10
    Forked(lambda: OtherRuns(dirs, "another").others(), keep=()).end(60)
    assert [resumes_after(20), resumes_after(30)] == [10, 30], "the other one came before 20 and is gone"


def test_the_newest_save_that_the_script_made_itself_is_told_beside_the_gasp(tmp_path: Path) -> None:
    looking = finder(tmp_path)

    def told() -> tuple[int | None, int | None]:
        answer = answers(RecoveryPointChosen, looking.find(AGAIN, 0.0))
        return step_of(answer), answer.periodic_step

    assert told() == (None, None), "nothing is there, and nobody knows where else something may be"
    gasp(tmp_path / "ckpt/rank_0/gasp.pt", 27)
    assert told() == (27, -1)
    put(tmp_path, 10, 20)
    assert told() == (27, 20)
    put(tmp_path, 30)
    put(tmp_path, 40, content=b"torn")
    assert told() == (30, 30)


@pytest.mark.parametrize("elsewhere", ["no folder was named", "it is of no known format"])
def test_where_the_script_may_save_elsewhere_nobody_says_it_did_not(tmp_path: Path, elsewhere: str) -> None:
    saved = gasp(tmp_path / "ckpt/gasp.pt", 27)
    looking = finder(tmp_path, roots=0 if elsewhere == "no folder was named" else 1)
    assert looking.read_back(saved).whole
    (tmp_path / "ckpt/weights-000020").write_bytes(b"\0" * 5_000_000)
    answer = answers(RecoveryPointChosen, looking.find(AGAIN, 0.0))
    assert (step_of(answer), answer.periodic_step) == (27, None)


def test_a_save_that_cannot_be_marked_is_said_and_stays_whole(tmp_path: Path) -> None:
    saved = gasp(tmp_path / "own/gasp.pt", 7)
    gasp(tmp_path / "own/below/gasp.pt", 8)
    (tmp_path / ".own.faultrun/.finished").mkdir(parents=True)
    (trouble,) = mark_finished([], [f"{tmp_path}/own"], "calm-heron-3f7a")
    assert trouble.startswith(f"{tmp_path}/own: ")
    assert finder(tmp_path, roots=0).read_back(saved).whole


def test_a_save_of_the_new_job_under_the_old_name_is_gone_on_from(tmp_path: Path) -> None:
    gasp(tmp_path / "ckpt/gasp.pt", 7)
    assert mark_finished([f"{tmp_path}/ckpt"], [], "calm-heron-3f7a") == []
    looking = finder(tmp_path)
    assert step_of(looking.find(FIRST, 0.0)) is None
    gasp(tmp_path / "ckpt/gasp.pt", 7)
    assert step_of(looking.find(AGAIN, 0.0)) == 7


def test_resume_always_takes_whatever_is_whole(tmp_path: Path) -> None:
    put(tmp_path, 10, 20)
    assert step_of(finder(tmp_path, Resume.ALWAYS).find(FIRST, 0.0)) == 20


def test_a_continued_run_takes_the_newest_whole_one_and_says_what_it_refused(tmp_path: Path) -> None:
    put(tmp_path, 10)
    put(tmp_path, 20, content=ckpt(1, 20)[:-7])
    answer = answers(RecoveryPointChosen, finder(tmp_path).find(AGAIN, 0.0))
    assert step_of(answer) == 10
    assert [Path(refusal.path).name for refusal in answer.refused] == ["net-1_20.ckpt"]


def test_when_none_is_whole_the_answer_is_an_error_for_people(tmp_path: Path) -> None:
    put(tmp_path, 10, 20, content=b"torn")
    answer = answers(NothingWhole, finder(tmp_path).find(AGAIN, 0.0))
    what, because, hint = answer.why.splitlines()
    assert what == f"no whole checkpoint in {tmp_path}/ckpt"
    assert because.startswith("  because: 2 found, none whole; ")
    assert hint == f"  try:     faultrun ckpt list --why {tmp_path}/ckpt"


def test_where_no_file_fits_this_run_nobody_calls_them_torn(tmp_path: Path) -> None:
    facts = {
        "schema": 1, "path": "a.bin", "step": 5, "world_size": 4, "rank": 0, "replica_group": [0],
        "size_bytes": 1, "run_id": "", "incarnation": 0, "node": "n",
    }  # fmt: skip
    save(tmp_path / "ckpt/a.bin", b"x")
    save(tmp_path / "ckpt/a.bin.manifest.json", json.dumps(facts).encode())
    answer = answers(NothingWhole, finder(tmp_path).find(AGAIN, 0.0))
    what, because, hint = answer.why.splitlines()
    assert hint == "  try:     --worker_num=4, as many as wrote them: a shard serves no other world"
    assert what == f"no usable checkpoint in {tmp_path}/ckpt"
    assert because.startswith("  because: 1 found, none usable; ")
    assert because.endswith(
        "written by 4 ranks, this run has 2; its state is sharded: this file holds that of rank 0 only"
    )


def test_a_save_is_read_back_by_its_content(tmp_path: Path) -> None:
    put(tmp_path, 10)
    put(tmp_path, 20, content=b"torn")
    looking = finder(tmp_path)
    assert looking.read_back(f"{tmp_path}/ckpt/net-1_10.ckpt").whole
    assert not looking.read_back(f"{tmp_path}/ckpt/net-1_20.ckpt").whole
    elsewhere = looking.read_back(f"{tmp_path}/elsewhere.ckpt")
    assert (elsewhere.whole, elsewhere.why) == (False, "no checkpoint in a known format")


def one_of_two(root: Path, resume: Resume) -> CheckpointFinder:
    two = Topology(nodes=(NodeSlots(node=NODE, slots=1), NodeSlots(node=NodeId("other"), slots=1)))
    spec = a_spec(
        topology=two,
        recovery=Recovery(checkpoint_dirs=(str(root / "ckpt"),), resume=resume),
        logs=Logs(log_dir=str(root)),
    )
    return CheckpointFinder(spec, Catalog(spec.recovery.checkpoint_dirs, settle_s=0.0), RunClock())


def test_a_node_that_comes_back_when_the_others_ended_the_run_misses_no_checkpoints(tmp_path: Path) -> None:
    known = replace(AGAIN, expects=gasp(tmp_path / "ckpt/rank_0/gasp.pt", 7))
    gasp(tmp_path / "ckpt/rank_1/gasp.pt", 7)
    assert mark_finished([f"{tmp_path}/ckpt"], [], "calm-heron-3f7a") == []
    answer = answers(RecoveryPointChosen, one_of_two(tmp_path, Resume.AUTO).find(known, 0.0))
    assert (answer.point, len(answer.refused)) == (None, 2)
    shutil.rmtree(tmp_path / "ckpt/rank_0")
    shutil.rmtree(tmp_path / "ckpt/rank_1")
    answers(NothingWhole, one_of_two(tmp_path, Resume.AUTO).find(known, 0.0))


def test_one_of_several_nodes_states_older_points_too_each_of_them_whole(tmp_path: Path) -> None:
    put(tmp_path, 10, 20, 30, 50, 60)
    put(tmp_path, 40, 70, content=b"torn")
    answer = answers(RecoveryPointChosen, one_of_two(tmp_path, Resume.ALWAYS).find(AGAIN, 0.0))
    assert step_of(answer) == 60
    assert [(point.global_step, point.files) for point in answer.more_points] == [
        (50, ()),
        (30, ()),
        (20, ()),
    ]
    assert answers(RecoveryPointChosen, finder(tmp_path).find(AGAIN, 0.0)).more_points == ()


def test_with_more_workers_than_before_a_file_for_each_rank_is_refused_by_name(tmp_path: Path) -> None:
    for rank in range(2):
        save(tmp_path / f"ckpt/rank_{rank}/net-1_5.ckpt", ckpt(1, 5))
    more = replace(AGAIN, world_size=3, before=2)
    answer = answers(NothingWhole, finder(tmp_path).find(more, 0.0))
    _, because, hint = answer.why.splitlines()
    assert "is one of a file for each rank, and nothing says that these are alike" in because
    assert hint.startswith("  try:     --worker_num=2, as many as wrote them; or move the files of all ranks")
    shutil.rmtree(tmp_path / "ckpt/rank_1")
    assert step_of(answers(RecoveryPointChosen, finder(tmp_path).find(more, 0.0))) == 5
