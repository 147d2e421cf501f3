"""The simulation against what is known in closed form, and what must hold for any faults."""

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from benchmarks.goodput import recoveries, theory
from benchmarks.goodput.answers import Job
from benchmarks.goodput.assumptions import Assumptions
from benchmarks.goodput.failures import Fault, Kind, month, months
from benchmarks.goodput.policies import NO_SAVES, Layout, Policy, kept_share, policies
from benchmarks.goodput.recoveries import Measured
from benchmarks.goodput.simulate import run, run_all, train
from benchmarks.goodput.study import plain
from hypothesis import given, settings
from hypothesis import strategies as st

DAY_S = 86_400.0
NAMES = (
    recoveries.COLD,
    recoveries.STANDBYS,
    recoveries.STAY,
    recoveries.SPARE,
    recoveries.TORCHRUN,
    recoveries.FT_LAUNCHER,
    recoveries.LOOP,
)
MEASURED = {name: Measured(samples_s=(at, 2 * at), source="a test") for at, name in enumerate(NAMES, start=1)}
LADDER = [policy for policy in policies(Layout.REPLICATED) if policy.ours]


def a_job(layout: Layout = Layout.REPLICATED, devices: int = 64, every_s: float = 1800.0) -> Job:
    return Job(
        devices=devices,
        layout=layout,
        every_s=every_s,
        copy_every_s=50.0,
        assumed=Assumptions(days=1.0),
        measured=MEASURED,
    )


def a_fault(at_s: float, kind: Kind = Kind.RANK, *, human: bool = False) -> Fault:
    return Fault(at_s=at_s, kind=kind, recovery=0.0, step=0.5, human=human)


def named(name: str, layout: Layout = Layout.REPLICATED) -> Policy:
    return next(policy for policy in policies(layout) if policy.name == name)


faults = st.lists(
    st.builds(
        Fault,
        at_s=st.floats(0, DAY_S - 1),
        kind=st.sampled_from(Kind),
        recovery=st.floats(0, 1),
        step=st.floats(0, 1),
        human=st.booleans(),
    ),
    max_size=12,
).map(lambda found: sorted(found, key=lambda fault: fault.at_s))
anybody = st.sampled_from([*policies(Layout.REPLICATED), *policies(Layout.SHARDED), NO_SAVES])


def test_without_a_fault_all_time_is_useful_but_that_of_the_saves() -> None:
    job = replace(a_job(every_s=570.0), assumed=Assumptions(days=1.0, save_s=30.0))
    assert run([], named("torchrun"), job).ettr == pytest.approx(570 / 600)


def test_a_restart_loses_what_was_not_saved_and_the_recovery() -> None:
    spent = run([a_fault(1800.0 + 30.0 + 600.0)], named("torchrun"), a_job())
    job = a_job()
    assert spent.again_s == pytest.approx(600.0)
    assert spent.restarting_s == pytest.approx(
        MEASURED[recoveries.TORCHRUN].samples_s[0] + job.assumed.load_s + job.assumed.reinit_s(64)
    )


def test_a_save_that_is_cut_off_saves_nothing() -> None:
    assert run([a_fault(1815.0)], named("torchrun"), a_job()).again_s == pytest.approx(1800.0)


def test_a_gasp_costs_its_writing_and_half_a_step() -> None:
    spent = run([a_fault(1000.0)], named("+ gasp"), a_job())
    plainly = run([a_fault(1000.0)], named("faultrun, restart"), a_job())
    assert spent.again_s == pytest.approx(2.5)
    assert spent.restarting_s - plainly.restarting_s == pytest.approx(30.0)


def test_a_gasp_of_the_others_is_worth_nothing_where_each_rank_holds_its_own_part() -> None:
    assert run([a_fault(1000.0)], named("+ gasp"), a_job(Layout.SHARDED)).again_s == pytest.approx(1000.0)
    copies = named("+ memory snapshots", Layout.SHARDED)
    assert run([a_fault(1000.0)], copies, a_job(Layout.SHARDED)).again_s == pytest.approx(25.0)
    lost = run([a_fault(1000.0, Kind.NODE)], copies, a_job(Layout.SHARDED))
    assert lost.again_s == pytest.approx(1000.0)


def test_survivors_that_stay_load_and_save_nothing_and_the_next_save_is_due_when_it_was() -> None:
    stay = named("+ survivors stay")
    spent = run([a_fault(1000.0)], stay, a_job())
    assert spent.restarting_s == pytest.approx(3.0 + 0.5 * a_job().assumed.reinit_s(64))
    both = run([a_fault(1000.0), a_fault(1500.0, Kind.EVERYWHERE)], stay, a_job())
    assert both.again_s == pytest.approx(2.5 + 1000.0 - 2.5 + 500.0 - spent.restarting_s)


def test_one_node_that_is_lost_leaves_nobody_to_save() -> None:
    assert run([a_fault(1000.0, Kind.NODE)], named("+ gasp"), a_job(devices=8)).again_s == 1000.0
    assert run([a_fault(1000.0, Kind.NODE)], named("+ gasp"), a_job(devices=16)).again_s == 2.5


def test_spares_serve_while_there_are_any() -> None:
    spares = named("+ spares over nodes")
    first = run([a_fault(1000.0, Kind.NODE)], spares, a_job())
    second = run([a_fault(1000.0, Kind.NODE), a_fault(20_000.0, Kind.NODE)], spares, a_job())
    assert first.hardware_s == 0.0
    assert second.hardware_s == 900.0


def test_a_hang_costs_the_time_until_somebody_notices_and_a_person_hours() -> None:
    assert run([a_fault(1000.0, Kind.HANG)], named("torchrun"), a_job()).noticing_s == 600.0
    assert run([a_fault(1000.0, Kind.HANG)], named("faultrun, restart"), a_job()).noticing_s == 300.0
    assert run([a_fault(1000.0, human=True)], named("torchrun"), a_job()).hardware_s == 7200.0


def test_a_fault_during_a_recovery_begins_it_anew() -> None:
    job = a_job(devices=8)
    one = run([a_fault(1000.0)], named("torchrun"), job)
    two = run([a_fault(1000.0), a_fault(1010.0)], named("torchrun"), job)
    assert two.restarting_s == pytest.approx(one.restarting_s + 10.0)


@pytest.mark.parametrize("every_s", [300.0, 1000.0, 4000.0])
def test_exponential_failures_give_what_daly_s_model_says(every_s: float) -> None:
    policy, job = plain(replace(a_job(devices=16_384, every_s=every_s), assumed=Assumptions()), 300.0)
    found = run_all(months(job.assumed, 16_384, 5000, seed=1), policy, job).mean.ettr
    expected = theory.ettr(every_s, 30.0, 300.0, job.assumed.mtbf_s(16_384))
    assert found == pytest.approx(expected, abs=0.01)


@given(st.floats(1, 300), st.floats(2000, 1e8))
def test_daly_s_interval_is_all_but_the_best_and_young_s_is_near(save_s: float, mtbf_s: float) -> None:
    best_s = theory.best_s(save_s, mtbf_s)
    best = theory.ettr(best_s, save_s, 0.0, mtbf_s)
    assert theory.ettr(theory.daly_s(save_s, mtbf_s), save_s, 0.0, mtbf_s) >= best * 0.999
    assert theory.ettr(theory.young_s(save_s, mtbf_s), save_s, 0.0, mtbf_s) >= best * 0.98
    for other_s in (best_s * 0.7, best_s * 1.4):
        assert theory.ettr(other_s, save_s, 0.0, mtbf_s) <= best


def test_where_a_save_takes_longer_than_failures_are_apart_daly_says_so() -> None:
    assert theory.daly_s(300.0, 100.0) == 100.0


@given(faults, anybody, st.sampled_from(Layout), st.sampled_from([8, 64, 1024]), st.floats(10, 1e5))
def test_every_second_is_counted_once(
    struck: list[Fault], policy: Policy, layout: Layout, devices: int, every_s: float
) -> None:
    spent = run(struck, policy, a_job(layout, devices, every_s))
    assert spent.total_s == pytest.approx(DAY_S)
    assert min(spent.useful_s, spent.again_s, spent.saving_s, spent.copying_s) >= -1e-6


@given(st.floats(0, 1e4), st.floats(0, 1), st.floats(1, 2000), st.floats(0, 100))
def test_a_stretch_is_the_same_in_one_piece_and_in_two(
    gap_s: float, part: float, every_s: float, save_s: float
) -> None:
    """But where it is cut inside of a save, which is then worth nothing."""
    whole = train(gap_s, 0.0, every_s, save_s)
    assert whole.trained_s + whole.saving_s == pytest.approx(gap_s)
    assert 0 <= whole.unsaved_s <= every_s + 1e-6
    first = train(gap_s * part, 0.0, every_s, save_s)
    if first.unsaved_s < every_s * 0.999:
        second = train(gap_s * (1 - part), first.unsaved_s, every_s, save_s)
        assert first.trained_s + second.trained_s == pytest.approx(
            whole.trained_s, abs=every_s * 0.002 + 1e-3
        )


@given(faults, st.floats(60, 1e5), st.floats(1, 5))
def test_slower_recoveries_and_notices_never_help(struck: list[Fault], every_s: float, slower: float) -> None:
    """Of a launcher that loses what is not saved, without saves."""
    job = replace(a_job(every_s=math.inf), assumed=Assumptions(days=1.0, save_s=0.0))
    worse = replace(
        job,
        measured={
            name: replace(one, samples_s=tuple(slower * s for s in one.samples_s))
            for name, one in MEASURED.items()
        },
        assumed=replace(job.assumed, hang_others_s=600.0 * slower, load_s=30.0 * slower),
    )
    policy = named("torchrun")
    assert waits(struck, policy, worse) >= waits(struck, policy, job) - 1e-6


@given(faults)
def test_spares_never_make_a_training_wait_longer(struck: list[Fault]) -> None:
    """But for gasps: whoever trains again has something to save at the next fault."""
    spares, without = named("+ spares over nodes"), named("+ survivors stay")
    gasps_s = a_job().assumed.gasp_s * len(struck)
    assert waits(struck, spares, a_job()) <= waits(struck, without, a_job()) + gasps_s


@given(st.integers(0, 50))
@settings(max_examples=5)
def test_over_many_months_each_rung_is_worth_something(seed: int) -> None:
    """With many faults; survivors that stay save no file, and so may lose a little."""
    job = a_job(devices=16_384, every_s=2400.0)
    job = replace(job, assumed=Assumptions(days=10.0))
    drawn = months(job.assumed, 16_384, 1500, seed)
    found = [run_all(drawn, policy, job).mean.ettr for policy in LADDER]
    assert all(later > earlier - 0.002 for earlier, later in pairwise(found))
    assert found[-1] > found[0] + 0.03


def test_more_faults_and_dearer_saves_cost_more() -> None:
    def ettr(**change: float) -> float:
        assumed = replace(Assumptions(), **change)  # type: ignore[arg-type]
        job = replace(a_job(devices=16_384), assumed=assumed)
        return run_all(months(assumed, 16_384, 1000, seed=3), named("torchrun"), job).mean.ettr

    usual = ettr()
    assert ettr(failures_per_node_day=0.008) < usual - 0.05
    assert ettr(save_s=120.0) < usual - 0.03
    assert ettr(reinit_16384_s=600.0) < usual - 0.02


def test_faults_come_as_often_and_as_the_shares_say() -> None:
    assumed = Assumptions(days=3000.0)
    found = month(assumed, 1024, random.Random(5))
    assert len(found) == pytest.approx(assumed.length_s / assumed.mtbf_s(1024), rel=0.1)
    for kind, share in ((Kind.NODE, 0.415), (Kind.EVERYWHERE, 0.129), (Kind.HANG, 0.017)):
        assert sum(fault.kind is kind for fault in found) / len(found) == pytest.approx(share, abs=0.04)


def test_what_is_kept_is_told_by_layout_and_size() -> None:
    assumed = Assumptions()
    assert kept_share(named("torchrun"), Layout.REPLICATED, 64, assumed) == 0
    assert kept_share(named("+ gasp"), Layout.REPLICATED, 64, assumed) == pytest.approx(1 - 0.129)
    assert kept_share(named("+ gasp"), Layout.REPLICATED, 8, assumed) == pytest.approx(1 - 0.129 - 0.415)
    assert kept_share(named("+ gasp"), Layout.SHARDED, 64, assumed) == 0


def waits(struck: list[Fault], policy: Policy, job: Job) -> float:
    spent = run(struck, policy, job)
    return spent.noticing_s + spent.hardware_s + spent.restarting_s
