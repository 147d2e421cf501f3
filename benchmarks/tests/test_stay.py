"""The draw of ``make soak-stay``, and proof that its judge sees what it is there to see."""

from pathlib import Path

from benchmarks.campaigns.everything_judge import began_anew, deserters
from benchmarks.campaigns.everything_plan import ENDS, OF_A_REPAIR, Kind, When, rounds
from benchmarks.campaigns.everything_presets import OF_A_NEWCOMER, OF_A_STEP, of_phases, of_survivors
from benchmarks.campaigns.ledgers import Life


def test_a_seed_draws_the_same_deaths_and_all_that_there_are() -> None:
    drawn = [of_survivors(number, seed=5) for number in range(100)]
    assert drawn == [of_survivors(number, seed=5) for number in range(100)]
    codes = [session.setting.code for session in drawn]
    assert (codes.count("exact-ddp"), codes.count("exact-fsdp")) == (60, 40)
    faults = [fault for session in drawn for fault in session.faults]
    deaths = [fault for fault in faults if fault.when is When.TRAINING]
    assert {death.kind for death in deaths} == {Kind.KILL, Kind.RANK, Kind.STUCK, Kind.TWO}
    assert {death.place for death in deaths} == {*OF_A_STEP, ENDS}
    assert {fault.place for fault in faults if fault.when is When.REPAIR} == set(OF_A_REPAIR)
    assert any(fault.kind is Kind.STANDBY for fault in faults)


def test_each_phase_of_a_repair_has_a_second_death_of_each_kind() -> None:
    drawn = [session for number in range(3) if (session := of_phases(number, 1)) is not None]
    assert [session.setting.code for session in drawn] == ["exact-ddp", "exact-fsdp"]
    for session in drawn:
        pairs = rounds(list(enumerate(session.faults)))
        assert all(len(pair) == 2 for pair in pairs)
        seconds = [(first.chance == second.chance, second.place) for (_, first), (_, second) in pairs]
        assert [place for same, place in seconds if not same] == list(OF_A_REPAIR)
        assert [place for same, place in seconds if same] == [*OF_A_NEWCOMER, "join"]


def test_survivors_that_are_gone_are_seen_and_who_was_killed_is_none(tmp_path: Path) -> None:
    gone = [Life(0, rank, 1 << 22 | rank, "a", tmp_path / "0.rank", 1.0, "") for rank in (0, 1)]
    assert not list(deserters(gone[:1], {gone[0].pid}, 0))
    assert not list(deserters(gone[:1], (), 1))
    assert "rank 0 of incarnation 0, rank 1 of incarnation 0" in " ".join(deserters(gone, (), 1))


def test_the_incarnation_in_which_all_began_anew_is_known() -> None:
    plans = [
        {"event": "PlanAdopted", "plan": {"incarnation": life, "kept": ranks}}
        for life, ranks in ((0, []), (1, [2]), (2, []))
    ]
    assert began_anew(plans[:2]) is None
    assert began_anew(plans) == 2
    assert began_anew(plans, since_life=2) is None
