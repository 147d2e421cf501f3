"""Stories of choosing where to resume."""

from dataclasses import replace

from faultrun.core.recovery.choose import Choice, Chosen, NeedVerdicts, NoneUsable, NothingFound, choose
from faultrun.core.recovery.need import Disks, Doubt, Need, Whose, World, last_resorts
from faultrun.model.checkpoint import Depth, Entry, Kind, Refusal, Verdict
from faultrun.model.plan import Attempt
from faultrun.model.spec.run_spec import Recovery
from support.checkpoints.entries import candidate as entry

WHOLE = Verdict(whole=True, why="all there", depth=Depth.CHECKSUM)
TORN = Verdict(whole=False, why="torn", depth=Depth.STRUCTURE)


def resolve(
    candidates: list[Entry], need: Need, *torn: str, broken: tuple[Refusal, ...] = ()
) -> tuple[Choice, list[str]]:
    """Ask and answer until there is a choice; also returns every path that had to be verified."""
    verdicts: dict[str, Verdict] = {}
    asked: list[str] = []
    while True:
        choice = choose(candidates, verdicts, need, broken=broken)
        if not isinstance(choice, NeedVerdicts):
            return choice, asked
        assert choice.paths
        assert not set(choice.paths) & set(asked), "asked twice"
        asked += choice.paths
        verdicts.update({path: TORN if path in torn else WHOLE for path in choice.paths})


def settled(candidates: list[Entry], need: Need, *torn: str) -> tuple[Chosen, list[str]]:
    choice, asked = resolve(candidates, need, *torn)
    assert isinstance(choice, Chosen), choice
    return choice, asked


def chosen(candidates: list[Entry], need: Need, *torn: str) -> str:
    return settled(candidates, need, *torn)[0].point.path


def reasons(choice: Choice) -> dict[str, str]:
    assert not isinstance(choice, NeedVerdicts)
    return {refusal.path: refusal.why for refusal in choice.refused}


PAIRS = tuple(frozenset({rank, rank + 8}) for rank in range(8))
"""The groups of the worked example: {0,8}, {1,9}, ... {7,15}."""


def test_the_newest_step_is_verified_first_and_nothing_else_is_read() -> None:
    candidates = [entry("a", 10), entry("c", 30), entry("b", 20)]
    choice, asked = settled(candidates, Need(world=World(size=1)))
    assert (choice.point.path, choice.point.global_step, asked) == ("c", 30, ["c"])
    assert choice.refused == ()


def test_a_torn_newest_file_is_refused_with_its_reason_and_the_next_one_wins() -> None:
    choice, asked = settled([entry("old", 10), entry("new", 20)], Need(world=World(size=1)), "new")
    assert choice.point.path == "old"
    assert choice.refused == (Refusal(path="new", global_step=20, why="torn"),)
    assert asked == ["new", "old"]


def test_in_pure_data_parallel_one_whole_copy_serves_every_rank() -> None:
    candidates = [entry("r0", 7, rank=0), entry("r1", 7, rank=1)]
    choice, asked = settled(candidates, Need(world=World(size=4)), "r0")
    assert [(file.rank, file.path, file.from_rank) for file in choice.point.files] == [
        (0, "r1", 1), (1, "r1", 1), (2, "r1", 1), (3, "r1", 1),
    ]  # fmt: skip
    assert choice.point.restore_ranks == "1"
    assert choice.point.restore_ranks_map == '{"0,1,2,3": 1}'
    assert asked == ["r0", "r1"]


def test_on_equal_step_periodic_beats_gasp_and_gasp_beats_best() -> None:
    files = [entry("best", 5, kind=Kind.BEST), entry("gasp", 5, kind=Kind.GASP), entry("periodic", 5)]
    assert chosen(files, Need(world=World(size=1))) == "periodic"
    assert chosen(files, Need(world=World(size=1)), "periodic") == "gasp"
    assert chosen(files, Need(world=World(size=1)), "periodic", "gasp") == "best"


def test_every_replica_group_needs_a_whole_file_at_the_same_step() -> None:
    groups = (frozenset({0, 1}), frozenset({2, 3}))
    files = [entry("0@20", 20, rank=0), entry("2@10", 10, rank=2), entry("1@10", 10, rank=1)]
    choice, _ = settled(files, Need(world=World(size=4, groups=groups)))
    assert choice.point.global_step == 10
    assert reasons(choice) == {"0@20": "this step has no whole file for ranks 2 3"}
    assert [file.path for file in choice.point.files] == ["1@10", "1@10", "2@10", "2@10"]


def test_within_a_group_the_next_replica_steps_in_for_a_torn_file() -> None:
    files = [entry(f"r{rank}", 5, rank=rank) for rank in range(16)]
    choice, asked = settled(files, Need(world=World(size=16, groups=PAIRS)), "r3")
    assert choice.point.restore_ranks == "0,1,2,4,5,6,7,11"
    assert asked == [f"r{rank}" for rank in range(8)] + ["r11"]
    assert reasons(choice) == {"r3": "torn"}


def test_worked_example_faults_3_and_11_leave_their_group_without_a_replica() -> None:
    files = [entry(f"r{rank}", 5, rank=rank) for rank in range(16)]
    choice, _ = resolve(
        files, Need(world=World(size=16, groups=PAIRS), doubt=Doubt(lost_ranks=frozenset({3, 11})))
    )
    assert isinstance(choice, NoneUsable)
    assert reasons(choice)["r3"] == "the disk of rank 3 is lost"
    assert reasons(choice)["r0"] == "this step has no whole file for ranks 3 11"


def test_a_file_that_belongs_to_no_rank_serves_every_group() -> None:
    choice, _ = settled([entry("dcp", 5)], Need(world=World(size=16, groups=PAIRS)))
    assert {file.path for file in choice.point.files} == {"dcp"}


def test_files_of_two_sessions_are_not_mixed_at_one_step() -> None:
    groups = (frozenset({0}), frozenset({1}))
    files = [
        entry("0@s0", 300, rank=0, session=0), entry("0@s1", 300, rank=0, session=1),
        entry("1@s0", 300, rank=1, session=0), entry("1@s1", 300, rank=1, session=1),
    ]  # fmt: skip
    choice, _ = resolve(files, Need(world=World(size=2, groups=groups)), "0@s1", "1@s0")
    assert isinstance(choice, NoneUsable)
    both_torn_in_the_new, _ = settled(files, Need(world=World(size=2, groups=groups)), "0@s1")
    assert [file.path for file in both_torn_in_the_new.point.files] == ["0@s0", "1@s0"]


def test_session_numbers_may_differ_where_every_rank_has_one_file_only() -> None:
    groups = (frozenset({0}), frozenset({1}))
    files = [entry("0@s4", 300, rank=0, session=4), entry("1@s0", 300, rank=1, session=0)]
    choice, _ = settled(files, Need(world=World(size=2, groups=groups)))
    assert [file.path for file in choice.point.files] == ["0@s4", "1@s0"]


def test_manifests_that_name_their_replica_group_serve_only_it() -> None:
    files = [
        entry("g0", 9, rank=0, replica_group=(0, 2)),
        entry("g2", 9, rank=2, replica_group=(0, 2)),
        entry("g1", 9, rank=1, replica_group=(1, 3)),
    ]
    choice, _ = settled(files, Need(world=World(size=4)), "g0")
    assert [file.path for file in choice.point.files] == ["g2", "g1", "g2", "g1"]
    alone, _ = resolve(files[:2], Need(world=World(size=4)))
    assert isinstance(alone, NoneUsable)
    assert reasons(alone)["g0"] == "this step has no whole file for rank 1"


def test_where_other_nodes_may_have_the_rest_what_serves_some_ranks_will_do() -> None:
    files = [
        entry(f"{rank}@{step}", step, rank=rank, replica_group=(rank,)) for step in (9, 5) for rank in (0, 1)
    ]
    whole, partly = (
        Need(world=World(size=4), disks=Disks(several=True)),
        Need(world=World(size=4), disks=Disks(several=True, partly=True)),
    )
    assert isinstance(resolve(files, whole)[0], NoneUsable)
    assert partly in [*last_resorts(whole)]
    assert partly not in [*last_resorts(Need(world=World(size=4)))]
    point = settled(files, partly)[0].point
    assert [(file.rank, file.path) for file in point.files] == [(0, "0@9"), (1, "1@9")]
    assert point.part_of != ""
    assert [file.path for file in settled(files, partly, "0@9")[0].point.files] == ["1@9"]
    assert settled(files, partly, "0@9", "1@9")[0].point.global_step == 5
    assert isinstance(resolve([replace(one, global_step=None) for one in files[:2]], partly)[0], NoneUsable)
    every = [entry(f"{rank}@9", 9, rank=rank, replica_group=(rank,)) for rank in range(4)]
    assert settled(every, partly)[0].point.part_of == ""
    lives = {settled([replace(files[0], incarnation=life)], partly)[0].point.part_of for life in (0, 1)}
    assert len(lives) == 2, "two lives that passed one step did not compute the same state"


def test_a_foreign_run_never_wins_and_is_none_of_our_candidates() -> None:
    files = [entry("ours", 5, run_id="a"), entry("theirs", 50, run_id="b")]
    choice, asked = settled(files, Need(world=World(size=1), whose=Whose(run_id="a")))
    assert (choice.point.path, asked) == ("ours", ["ours"])
    assert reasons(choice) == {"theirs": "written by run b, this is run a"}
    alone, _ = resolve(files[1:], Need(world=World(size=1), whose=Whose(run_id="a")))
    assert isinstance(alone, NothingFound), (
        "a new run beside an old one's files starts from zero, it does not fail"
    )


def test_a_step_that_a_rank_beyond_this_world_saved_too_is_of_a_larger_world() -> None:
    files = [entry(f"r{rank}", 50, rank=rank, series="net-") for rank in (0, 7)] + [entry("ours", 5, rank=0)]
    choice, _ = settled(files, Need(world=World(size=4)))
    assert choice.point.path == "ours"
    why = "rank 7 saved this step too, so it was written by more than 4 ranks"
    assert reasons(choice) == {"r0": why, "r7": why}


def test_what_is_quarantined_sends_the_choice_to_the_next_older() -> None:
    files = [entry("a", 10, inode=1), entry("b", 20, inode=2), entry("renamed", 30, inode=3)]
    aside = (
        Attempt(path="b", failures=2),
        Attempt(path="c", failures=2, identity=entry("c", 30, inode=3).identity),
    )
    choice, asked = settled(files, Need(world=World(size=1), doubt=Doubt(quarantine=aside)))
    assert (choice.point.path, asked) == ("a", ["a"])
    assert set(reasons(choice).values()) == {"quarantined: two restarts made no progress past it"}


def test_what_was_written_anew_under_a_quarantined_name_is_a_checkpoint_like_any_other() -> None:
    aside = Attempt(path="last", failures=2, identity=entry("last", 5, mtime_ns=1).identity)
    files = [entry("best", 3), entry("last", 10, mtime_ns=2)]
    assert chosen(files, Need(world=World(size=1), doubt=Doubt(quarantine=(aside,)))) == "last"


def test_a_gasp_saved_after_a_death_counts_only_if_its_writer_vouches_for_it() -> None:
    need = Need(world=World(size=1), doubt=Doubt(after_fault=True))
    torn_update = entry("exception_save", 25, kind=Kind.GASP)
    assert chosen([torn_update, entry("p", 20)], need) == "p"
    assert chosen([torn_update, entry("p", 20)], replace(need, doubt=Doubt())) == "exception_save"
    assert chosen([replace(torn_update, consistent=True), entry("p", 20)], need) == "exception_save"
    assert chosen([replace(torn_update, first_seen=0), entry("p", 20)], need) == "exception_save"


def test_without_steps_epochs_decide_and_without_epochs_times() -> None:
    files = [
        entry("e3", epoch=3, mtime_ns=9),
        entry("e9", epoch=9, mtime_ns=1),
        entry("best_acc", mtime_ns=99),
    ]
    assert chosen(files, Need(world=World(size=1))) == "e9"
    assert chosen(files, Need(world=World(size=1)), "e9", "e3") == "best_acc"
    assert chosen([entry("a", mtime_ns=1), entry("b", mtime_ns=2)], Need(world=World(size=1))) == "b"


def test_candidates_but_none_whole_is_not_the_same_as_nothing_found() -> None:
    nothing, _ = resolve([], Need(world=World(size=1)))
    assert nothing == NothingFound()
    torn, _ = resolve([entry("a", 1)], Need(world=World(size=1)), "a")
    assert torn == NoneUsable(refused=(Refusal(path="a", global_step=1, why="torn"),))
    empty = Refusal(path="z", global_step=2, why="is empty")
    only_empty, _ = resolve([], Need(world=World(size=1)), broken=(empty,))
    assert only_empty == NoneUsable(refused=(empty,))


def test_a_rank_is_what_the_option_that_tells_each_rank_its_file_says() -> None:
    """A number without such words may count saves: files of one step, seen as several saves, are of one."""
    need = Need(world=World(size=2, own_files=True, own_names=(r"ckpt/m_(\d+)\.pt", r"m_(\d+)\.pt")))
    older, newer = ([entry(f"ckpt/m_{one}.pt", at, written=at + one) for one in (0, 1)] for at in (10, 20))
    other = entry("ckpt/o_0.pt", 20, written=22)
    point = settled([*newer, other], need)[0].point
    assert [point.path_for(rank) for rank in (0, 1)] == ["ckpt/m_0.pt", "ckpt/m_1.pt"]
    choice = resolve([newer[0], older[1], other], need)[0]
    assert reasons(choice)["ckpt/o_0.pt"] == "the option that tells each rank its file names another"
    assert isinstance(choice, NoneUsable)
    deeper = [entry(f"ckpt/best/m_{one}.pt", 30, written=30 + one) for one in (0, 1)]
    assert settled([*newer, *deeper], need)[0].point.path == "ckpt/m_0.pt", "the option names that folder"
    assert settled(deeper, need)[0].point.path == "ckpt/best/m_0.pt", "a folder may have two names"


def test_how_the_path_of_each_rank_ends_is_told_by_the_option() -> None:
    told = ("--from=../ckpt/p{rank}/a.pt", "--from={checkpoint_dir}/m_{rank}.pt", "ckpt/m_{rank}_{epoch}.pt")
    ends = [Recovery(resume_args=(one,)).own_names for one in told]
    assert ends == [(r"ckpt/p(\d+)/a\.pt", r"p(\d+)/a\.pt"), (r"m_(\d+)\.pt",), ()]
