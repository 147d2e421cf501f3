"""What depends on the number of workers, and what does not."""

from faultrun.core.recovery.choose import Chosen, NeedVerdicts, NoneUsable, choose
from faultrun.core.recovery.need import Need, World
from faultrun.core.recovery.replica_groups import Group
from faultrun.core.recovery.reshardable import written_by
from faultrun.model.checkpoint import Depth, Entry, Kind, Verdict
from support.checkpoints.entries import candidate

GROUPS = (frozenset({0, 2}), frozenset({1, 3}))


def fixed_by(
    *entries: Entry,
    world_size: int = 4,
    groups: tuple[Group, ...] | None = None,
    resharded: bool | None = None,
) -> str:
    """What the point that is chosen from ``entries`` says of another number of workers."""
    wanted = Need(world=World(size=world_size, groups=groups, resharded=resharded, elastic=True))
    whole = {one.path: Verdict(whole=True, why="looked at", depth=Depth.CHECKSUM) for one in entries}
    choice = choose(entries, whole, wanted)
    assert isinstance(choice, Chosen), choice
    return choice.point.fixed_by


def test_what_all_ranks_held_alike_serves_any_number() -> None:
    alike = candidate("a", 5, rank=0, kind=Kind.GASP, world_size=4, replica_group=(0, 1, 2, 3))
    assert fixed_by(alike) == ""
    assert fixed_by(alike, resharded=False).startswith("its recipe says that it loads into the same number")


def test_what_its_code_cuts_anew_serves_any_number() -> None:
    for format_ in ("torch-dcp", "mindformers", "safetensors"):
        assert fixed_by(candidate("folder", 5, format=format_)) == ""
    parts = candidate("parts", 5, world_size=4)
    assert fixed_by(parts) == "parts has the parts of 4 ranks"
    assert fixed_by(parts, resharded=True) == ""


def test_a_file_of_rank_0_alone_serves_all_and_one_of_each_rank_may_be_a_shard() -> None:
    assert fixed_by(candidate("net", 5, rank=0)) == ""
    each = [candidate(f"net.{rank}", 5, rank=rank) for rank in range(4)]
    why = "net.0 is one of a file for each rank, and nothing says that these are alike"
    assert fixed_by(*each) == why
    assert fixed_by(*each, groups=(frozenset(range(4)),)) == ""


def test_of_one_step_the_file_that_serves_any_number_is_chosen_before_one_that_may_be_a_shard() -> None:
    each = [candidate(f"net.{rank}", 5, rank=rank) for rank in range(2)]
    alike = candidate("gasp", 5, rank=0, kind=Kind.GASP, world_size=2, replica_group=(0, 1))
    torn = Verdict(whole=False, why="torn", depth=Depth.CHECKSUM)
    whole = {one.path: Verdict(whole=True, why="", depth=Depth.CHECKSUM) for one in (*each, alike)}

    def chosen(verdicts: dict[str, Verdict], *, elastic: bool) -> str:
        choice = choose([*each, alike], verdicts, Need(world=World(size=2, elastic=elastic)))
        return choice.point.path if isinstance(choice, Chosen) else str(choice)

    assert (chosen(whole, elastic=True), chosen(whole, elastic=False)) == ("gasp", "net.0")
    assert chosen(whole | {"gasp": torn}, elastic=True) == "net.0"
    unread = {path: verdict for path, verdict in whole.items() if path != "gasp"}
    assert chosen(unread, elastic=True) == str(NeedVerdicts(paths=("gasp",)))


def test_shards_of_ranks_serve_their_own_world_unless_the_workers_named_their_replicas() -> None:
    shards = [
        candidate(f"s.{rank}", 5, rank=rank, kind=Kind.GASP, world_size=2, replica_group=(rank,))
        for rank in (0, 1)
    ]
    assert fixed_by(*shards, world_size=2) == "its state is sharded: s.0 holds that of rank 0 only"
    each = [candidate(f"net.{rank}", 5, rank=rank) for rank in range(4)]
    assert fixed_by(*each, groups=GROUPS) == ""  # whole copies may leave: core/placement/resize.py says which


def test_a_folder_that_is_cut_anew_is_for_all_whatever_shards_lie_beside_it() -> None:
    gasps = [
        candidate(f"s.{rank}", 6, rank=rank, kind=Kind.GASP, world_size=3, replica_group=(rank,))
        for rank in (0, 2)
    ]
    folder = candidate("step-5", 5, format="torch-dcp")
    entries = (*gasps, folder)
    whole = {one.path: Verdict(whole=True, why="", depth=Depth.CHECKSUM) for one in entries}

    def chosen(*found: Entry, world_size: int = 3) -> str:
        choice = choose(found, whole, Need(world=World(size=world_size, elastic=True)))
        assert isinstance(choice, Chosen)
        assert (choice.point.path, choice.point.fixed_by) == ("step-5", "")
        return choice.point.restore_ranks_map

    assert chosen(*entries) == '{"0,1,2": 0}'
    copies = [
        candidate(f"c.{rank}", 6, rank=rank, kind=Kind.GASP, world_size=4, replica_group=(rank, rank + 2))
        for rank in (0,)
    ]
    whole |= {one.path: Verdict(whole=True, why="", depth=Depth.CHECKSUM) for one in copies}
    assert '"0,2"' in chosen(*copies, folder, world_size=4)  # HSDP: whole copies leave, or nobody


def test_parts_in_one_folder_serve_their_own_world_although_there_are_replica_groups() -> None:
    parts = candidate("parts", 5, world_size=4)
    assert fixed_by(parts, groups=GROUPS) == "parts has the parts of 4 ranks"


def test_a_run_that_is_started_again_with_another_number_takes_nothing_that_depends_on_it() -> None:
    each = [candidate(f"net.{rank}", 6, rank=rank) for rank in range(2)]
    older = candidate("folder", 5, format="torch-dcp")
    whole = {one.path: Verdict(whole=True, why="", depth=Depth.CHECKSUM) for one in (*each, older)}
    for workers in (1, 3):
        choice = choose((*each, older), whole, Need(world=World(size=workers, elastic=True, resized=True)))
        assert isinstance(choice, Chosen)
        assert choice.point.path == "folder"
        assert len(choice.refused) == 2
    none = choose(each, whole, Need(world=World(size=3, elastic=True, resized=True)))
    assert isinstance(none, NoneUsable)
    assert none.refused[0].why == "is one of a file for each rank, and nothing says that these are alike"
    alone = choose(each[:1], whole, Need(world=World(size=3, elastic=True, resized=True)))
    assert isinstance(alone, Chosen)


def test_how_many_wrote_a_folder_is_known_where_all_files_agree() -> None:
    each = [candidate(f"net.{rank}", 5, rank=rank) for rank in range(2)]
    assert written_by(each, 1) == 2
    assert written_by(each, 2) is None
    assert written_by([candidate("a", 5, world_size=4), candidate("b", 6, world_size=4)], 2) == 4
    assert written_by([candidate("a", 5, world_size=4), candidate("b", 6, world_size=3)], 2) is None
    assert written_by([candidate("a", 5)], 2) is None
    assert written_by([], 2) is None


def test_nobody_asks_where_the_run_may_not_shrink() -> None:
    parts = candidate("parts", 5, world_size=4)
    answer = choose([parts], {}, Need(world=World(size=4)))
    assert isinstance(answer, NeedVerdicts)
    whole = {"parts": Verdict(whole=True, why="", depth=Depth.CHECKSUM)}
    answer = choose([parts], whole, Need(world=World(size=4)))
    assert isinstance(answer, Chosen)
    assert answer.point.fixed_by == ""
