"""One recovery point is one state of training: lives, runs, epochs and world sizes are never mixed."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.recovery.choose import Chosen, NeedVerdicts, NoneUsable, NothingFound, choose
from faultrun.core.recovery.need import Doubt, Need, Whose, World
from faultrun.model.checkpoint import Depth, Entry, Kind, Verdict
from support.checkpoints.entries import candidate


def entry(path: str, step: int, rank: int | None, **more: object) -> Entry:
    return candidate(path, step, rank=rank, **{"kind": Kind.GASP, **more})


def settled(
    entries: list[Entry], need: Need, torn: frozenset[str] = frozenset()
) -> Chosen | NoneUsable | NothingFound:
    verdicts: dict[str, Verdict] = {}
    while isinstance(choice := choose(entries, verdicts, need), NeedVerdicts):
        for path in choice.paths:
            verdicts[path] = Verdict(whole=path not in torn, why="looked at", depth=Depth.CHECKSUM)
    return choice


def loaded(entries: list[Entry], need: Need) -> list[str]:
    choice = settled(entries, need)
    assert isinstance(choice, Chosen), choice
    return [file.path for file in choice.point.files]


def shards(step: int, life: int, ranks: tuple[int, ...] = (0, 1), **more: object) -> list[Entry]:
    return [
        entry(f"{step}@{life}.{rank}", step, rank, **{"incarnation": life, "replica_group": (rank,), **more})
        for rank in ranks
    ]


def test_shards_of_two_lives_at_one_step_are_no_recovery_point() -> None:
    files = [*shards(5, 0), *shards(10, 0, (0,)), *shards(10, 1, (1,))]
    choice = settled(files, Need(world=World(size=2)))
    assert isinstance(choice, Chosen)
    assert [file.path for file in choice.point.files] == ["5@0.0", "5@0.1"]
    assert choice.refused[0].why == "this step has no whole file for rank 0 of one life"


def test_a_shard_that_does_not_tell_its_life_is_not_taken_together_with_one_that_does() -> None:
    untold = entry("own", 10, 1, kind=Kind.PERIODIC)
    assert loaded([*shards(5, 0), *shards(10, 1, (0,)), untold], Need(world=World(size=2))) == [
        "5@0.0",
        "5@0.1",
    ]


def test_shards_that_tell_no_life_are_of_the_one_in_which_they_were_seen_first() -> None:
    need = Need(world=World(size=2, groups=(frozenset({0}), frozenset({1}))))
    old = [entry(f"5.{rank}", 5, rank, first_seen=0) for rank in (0, 1)]
    left, new = entry("10.0", 10, 0, first_seen=0), entry("10.1", 10, 1, first_seen=None)
    assert loaded([*old, left, new], need) == ["5.0", "5.1"]
    assert loaded([*old, replace(left, first_seen=None), new], need) == ["10.0", "10.1"]


def test_the_later_life_is_tried_first_and_the_earlier_one_serves_if_it_is_complete() -> None:
    both = [*shards(10, 0), *shards(10, 1)]
    assert loaded(both, Need(world=World(size=2))) == ["10@1.0", "10@1.1"]
    assert loaded([*shards(10, 0), *shards(10, 1, (0,))], Need(world=World(size=2))) == ["10@0.0", "10@0.1"]


def test_shards_of_two_runs_or_two_epochs_are_not_mixed() -> None:
    need = Need(world=World(size=2))
    for fact in ({"run_id": "a"}, {"epoch": 1}):
        other = {"run_id": "b"} if "run_id" in fact else {"epoch": 2}
        files = [*shards(10, 0, (0,), **fact), *shards(10, 0, (1,), **other)]
        assert isinstance(settled(files, need), NoneUsable)


def test_a_periodic_file_of_one_rank_is_a_shard_where_the_gasps_of_other_steps_are() -> None:
    periodic = [entry(f"own{rank}", 20, rank, kind=Kind.PERIODIC) for rank in (0, 1)]
    assert loaded([*shards(5, 0), *periodic], Need(world=World(size=2))) == ["own0", "own1"]
    assert loaded([*shards(5, 0), periodic[0]], Need(world=World(size=2))) == ["5@0.0", "5@0.1"]


def replicated(step: int, world_size: int, rank: int = 0) -> Entry:
    group = tuple(range(world_size))
    return entry(f"{step}.{rank}", step, rank, world_size=world_size, replica_group=group)


def test_a_state_that_every_rank_held_resumes_with_fewer_and_with_more_ranks() -> None:
    both = [replicated(10, 2, 0), replicated(10, 2, 1)]
    for world_size in (1, 2, 3, 8):
        assert loaded(both, Need(world=World(size=world_size))) == ["10.0"] * world_size
        assert loaded(both[1:], Need(world=World(size=world_size))) == ["10.1"] * world_size


def test_a_sharded_state_needs_the_world_that_wrote_it_and_says_so() -> None:
    files = shards(10, 0, world_size=2)
    assert loaded(files, Need(world=World(size=2))) == ["10@0.0", "10@0.1"]
    choice = settled(files, Need(world=World(size=1)))
    assert isinstance(choice, NoneUsable)
    assert choice.refused[1].why == (
        "written by 2 ranks, this run has 1; its state is sharded: this file holds that of rank 1 only"
    )


def test_replicas_of_another_world_do_not_serve_a_run_that_is_sharded_itself() -> None:
    groups = (frozenset({0}), frozenset({1}))
    choice = settled([replicated(10, 4)], Need(world=World(size=2, groups=groups)))
    assert isinstance(choice, NoneUsable)
    assert choice.refused[0].why == "written by 4 ranks, this run has 2"


WORLD = 3


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Entry], frozenset[str]]:
    """Files of a sharded run of several lives, each going over steps that earlier ones saved too.

    Ranks die before they saved, files are cut, renamed and touched; some writers tell neither epoch nor life.
    """
    files: list[Entry] = []
    for life in range(draw(st.integers(1, 4))):
        run_id = draw(st.sampled_from(["a", "a", "a", "b", None]))
        tells_life, tells_epoch = draw(st.booleans()), draw(st.booleans())
        first = draw(st.integers(0, 3))
        for step in range(first, first + draw(st.integers(1, 3))):
            for rank in draw(st.sets(st.integers(0, WORLD - 1))):
                files.append(
                    entry(
                        f"{draw(st.integers(0, 9))}-{len(files)}",
                        step,
                        rank,
                        kind=draw(st.sampled_from(Kind)),
                        mtime_ns=draw(st.integers(0, 3)),
                        run_id=run_id,
                        incarnation=life if tells_life else None,
                        first_seen=None if tells_life else life,
                        epoch=step // 2 if tells_epoch else None,
                        world_size=draw(st.sampled_from([None, WORLD])) if not tells_life else WORLD,
                        replica_group=(rank,),
                        series=f"life {life}",
                    )
                )
    return files, frozenset(
        draw(st.sets(st.sampled_from([one.path for one in files])))
    ) if files else frozenset()


@settings(max_examples=300, deadline=None)
@given(histories(), st.sampled_from([None, "a"]))
def test_no_point_mixes_its_files(history: tuple[list[Entry], frozenset[str]], run_id: str | None) -> None:
    files, torn = history
    choice = settled(files, Need(world=World(size=WORLD), whose=Whose(run_id=run_id)), torn)
    if not isinstance(choice, Chosen):
        return
    by_path = {one.path: one for one in files}
    chosen = [by_path[file.path] for file in choice.point.files]
    assert [one.rank for one in chosen] == list(range(WORLD))
    assert not {one.path for one in chosen} & torn
    for fact in ("global_step", "epoch", "incarnation", "run_id", "world_size", "series"):
        assert len({getattr(one, fact) for one in chosen}) == 1, fact


UNVERIFIABLE = Verdict(whole=False, why="encrypted", depth=Depth.NAME, unverifiable=True)
TORN = Verdict(whole=False, why="torn", depth=Depth.CHECKSUM)
WHOLE = Verdict(whole=True, why="whole", depth=Depth.CHECKSUM)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([WHOLE, TORN, UNVERIFIABLE])), max_size=8),
    st.booleans(),
)
def test_what_nobody_can_verify_is_used_only_on_request_and_behind_what_is_verified(
    saves: list[tuple[int, Verdict]], trust: bool
) -> None:
    files = [entry(f"{number}", step, None) for number, (step, _) in enumerate(saves)]
    known = {f"{number}": verdict for number, (_, verdict) in enumerate(saves)}
    verdicts: dict[str, Verdict] = {}
    while isinstance(
        choice := choose(files, verdicts, Need(world=World(size=2), doubt=Doubt(trust=trust))), NeedVerdicts
    ):
        verdicts |= {path: known[path] for path in choice.paths}
    usable = {step for step, one in saves if one.whole or (trust and one.unverifiable)}
    assert isinstance(choice, Chosen) == bool(usable)
    if isinstance(choice, Chosen):
        step = choice.point.global_step
        assert step == max(usable)
        assert choice.point.unverified == ((step, WHOLE) not in saves)
        assert choice.point.path not in {one.path for one in choice.refused}
    if isinstance(choice, NoneUsable):
        assert choice.unverifiable == sum(one.unverifiable for _, one in saves)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), min_size=1, max_size=8), st.integers(1, 8))
def test_the_newest_replicated_state_serves_any_world(saves: list[tuple[int, int]], world_size: int) -> None:
    files = [
        entry(f"{number}", step, 0, world_size=world, replica_group=tuple(range(world)))
        for number, (step, world) in enumerate(saves)
    ]
    choice = settled(files, Need(world=World(size=world_size)))
    assert isinstance(choice, Chosen)
    assert choice.point.global_step == max(step for step, _ in saves)
    assert len({file.path for file in choice.point.files}) == 1
    assert len(choice.point.files) == world_size


def test_what_all_ranks_saved_together_serves_any_world_where_the_code_reshards() -> None:
    together = [entry("5", 5, None, world_size=4), entry("10", 10, None, world_size=2)]
    choice = settled(together, Need(world=World(size=4)))
    assert isinstance(choice, Chosen)
    assert choice.refused[0].why == "written by 2 ranks, this run has 4"
    assert choice.point.path == "5"
    for world_size in (1, 3, 4):
        assert loaded(together, Need(world=World(size=world_size, resharded=True))) == ["10"] * world_size


def test_what_its_code_can_load_anywhere_serves_every_world_unless_the_recipe_says_no() -> None:
    together = [entry("10", 10, None, world_size=2, fits_any_world=True)]
    assert loaded(together, Need(world=World(size=3))) == ["10"] * 3
    alike = [entry("10", 10, 0, world_size=2, replica_group=(0, 1))]
    assert loaded(alike, Need(world=World(size=3))) == ["10"] * 3
    assert isinstance(settled(alike, Need(world=World(size=3, resharded=False))), NoneUsable)
    choice = settled(together, Need(world=World(size=3, resharded=False)))
    assert isinstance(choice, NoneUsable)
    assert choice.refused[0].why == "written by 2 ranks, this run has 3"


def test_a_file_of_one_rank_serves_no_other_world_even_then() -> None:
    for files in (shards(10, 0, world_size=2), [entry("10", 10, 0, world_size=2)]):
        choice = settled(files, Need(world=World(size=4, resharded=True)))
        assert isinstance(choice, NoneUsable)
        assert choice.refused[0].why.startswith("written by 2 ranks, this run has 4")
