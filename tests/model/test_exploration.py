"""The product's own ``judge`` and ``next_step``, explored beside a model of etcd: what always is."""

import pytest

from model.cluster import Setting
from model.explore import explore, explore_with_delays, walk
from model.runs import (
    DELAYED_IN_CI,
    DELAYED_MUTANTS_IN_CI,
    FORGETS,
    IN_CI,
    LOST,
    MUTANTS_IN_CI,
    REACHES,
    Mutant,
)

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if IN_CI[name].spares else name for name in IN_CI]
)
def test_every_fault_at_every_moment_is_survived(name: str) -> None:
    found = explore(IN_CI[name])
    assert (found.bad, found.stuck, found.complete) == ("", 0, True), "\n".join(found.trace)
    assert found.sometimes >= REACHES[name]


def test_a_run_that_has_saved_is_not_begun_anew_by_hosts_that_know_of_no_save() -> None:
    found = explore_with_delays(FORGETS, 0)
    assert (found.bad, found.complete) == ("", True), "\n".join(found.trace)
    assert found.sometimes >= {*LOST, "refused"}


@pytest.mark.slow
@pytest.mark.parametrize("name", DELAYED_IN_CI)
def test_whoever_is_kept_waiting_now_and_then_survives_it(name: str) -> None:
    setting, delays = DELAYED_IN_CI[name]
    found = explore_with_delays(setting, delays)
    assert (found.bad, found.complete) == ("", True), "\n".join(found.trace)
    assert found.sometimes >= {*LOST, "spare used", "fenced"}


def test_a_mutant_dies_where_few_are_kept_waiting() -> None:
    """So what is explored with delays would have shown it."""
    for mutant in DELAYED_MUTANTS_IN_CI:
        away = frozenset(mutant.guards.split())
        found = explore_with_delays(mutant.where._replace(away=away), 1)
        assert found.bad.startswith(mutant.law), mutant


def test_walks_with_several_faults_break_no_law() -> None:
    for setting in (Setting(2, 1, 2, saves=True), Setting(3, 1, 3, saves=True)):
        found = walk(setting, seed=1, walks=20)
        assert not found.bad, "\n".join(found.trace)
        assert "trains again" in found.sometimes


@pytest.mark.parametrize("mutant", MUTANTS_IN_CI, ids=lambda mutant: mutant.guards)
def test_without_this_guard_a_law_breaks(mutant: Mutant) -> None:
    away = frozenset(mutant.guards.split())
    found = explore(mutant.where._replace(away=away), live=False)
    assert found.bad.startswith(mutant.law), found
