"""The fault-injection kit: its text, its moments, its chance. What the faults do: the soak tests."""

import contextlib
from collections import Counter

import pytest

from faultrun.testing import Injector, injector_of
from faultrun.testing.fault import BadFault, FaultKind, InjectedFault, RandomFaults, Trigger, parse
from faultrun.testing.inject import InjectedError


def test_a_text_names_faults_and_a_fault_says_itself_as_text() -> None:
    faults, chance = parse("kill:rank=1,step=50 ; exit:phase=startup,value=3,life=*;")
    assert faults == (
        InjectedFault(kind=FaultKind.KILL, rank=1, step=50),
        InjectedFault(kind=FaultKind.EXIT, phase=Trigger.STARTUP, life=None, value=3),
    )
    assert chance is None
    assert parse(";".join(fault.text for fault in faults)) == (faults, None)


def test_chance_has_a_seed() -> None:
    assert parse("random:seed=7,mean=3,kinds=kill+segv,lives=9") == (
        (),
        RandomFaults(seed=7, mean=3, kinds=(FaultKind.KILL, FaultKind.SEGV), lives=9),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("explode:rank=1", "'explode' is not a valid FaultKind"),
        ("kill:rank", "'rank' is no key=value"),
        ("kill:rank=one", "invalid literal"),
        ("kill:phase=lunch", "'lunch' is not a valid Trigger"),
        ("kill:colour=red", "unknown colour"),
        ("random:seed=x", "invalid literal"),
        ("random:kinds=kill+", "'' is not a valid FaultKind"),
    ],
)
def test_a_text_that_is_no_fault_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadFault, match=says):
        parse(text)


def test_a_fault_strikes_once_at_its_moment_in_its_life() -> None:
    raising = InjectedFault(kind=FaultKind.RAISE, rank=1, step=3, life=2)
    Injector((raising,), None, rank=0, life=2, world_size=2).at("step", 3)
    Injector((raising,), None, rank=1, life=1, world_size=2).at("step", 3)
    struck = Injector((raising,), None, rank=1, life=2, world_size=2)
    struck.at("step", 2)
    struck.at("save", 3)
    with pytest.raises(InjectedError, match="injected in step 3"):
        struck.at("step", 3)
    struck.at("save", 3)
    struck.at("step", 4)
    struck.at("step", 3)


def test_every_rank_draws_the_same_and_one_is_struck_after_the_same_steps() -> None:
    chance = RandomFaults(seed=1, mean=4, kinds=(FaultKind.RAISE,), lives=40)
    struck = Counter[int]()
    for life in range(42):
        for rank in range(3):
            injector = Injector((), chance, rank=rank, life=life, world_size=3)
            with contextlib.suppress(InjectedError):
                for step in range(1, 9):
                    injector.at("step", step)
                    injector.at("step", step)  # told by the SDK as well
                continue
            struck[life] += 1
    assert sorted(struck) == list(range(40))
    assert set(struck.values()) == {1}


def test_a_worker_is_known_by_its_environment() -> None:
    environ = {"FAULTRUN_CHAOS": "raise:rank=3,life=2", "RANK": "3", "FAULTRUN_INCARNATION": "2"}
    with pytest.raises(InjectedError):
        injector_of(environ).at("step", 1)
    injector_of({**environ, "RANK": "2"}).at("step", 1)
    injector_of({}).at("step", 1)
