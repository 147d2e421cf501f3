"""A recovery as a trace: its parts lie end to end, between the fault and the first new step."""

from dataclasses import replace

import pytest

from faultrun.observe.account.accountant import Account
from faultrun.observe.trace import recovery_trace
from support.account_stories import account_of, lines_of, one_fault

S = 1_000_000_000


def the_account() -> Account:
    return account_of(lines_of(one_fault(resume_at=61)))


def test_the_parts_of_a_recovery_follow_one_another_and_fill_it() -> None:
    account = the_account()
    (fault,) = account.faults
    trace = recovery_trace(account, fault)
    assert trace is not None
    assert [part.name for part in trace.parts] == ["drain", "choose", "spawn", "start"]
    assert [(part.end_ns - part.begin_ns) / S for part in trace.parts] == pytest.approx([5, 2, 4, 4])
    assert [part.begin_ns for part in trace.parts] == [
        trace.begin_ns,
        *(part.end_ns for part in trace.parts[:-1]),
    ]
    assert (trace.parts[-1].end_ns, trace.recovered) == (trace.end_ns, True)


def test_a_start_is_told_part_by_part_where_ranks_were_heard_to_meet() -> None:
    account = the_account()
    timeline = {"spawn_s": 3.0, "import_s": 2.5, "rendezvous_s": 0.5, "first_step_s": 1.0}
    trace = recovery_trace(account, replace(account.faults[0], timeline=timeline))
    assert trace is not None
    names, lengths = zip(
        *((one.name, (one.end_ns - one.begin_ns) / S) for one in trace.parts[3:]), strict=True
    )
    assert names == ("start", "import", "rendezvous", "first step")
    assert lengths == pytest.approx((4, 2.5, 0.5, 1))
    assert trace.parts[-1].end_ns == trace.end_ns


def test_it_stands_at_its_place_on_the_wall_clock_and_says_what_is_known() -> None:
    account = the_account()
    trace = recovery_trace(account, account.faults[0])
    assert trace is not None
    assert trace.begin_ns == (1_795_219_200 + 110) * S  # 2026-11-21, and 110 s of the story
    assert trace.about["faultrun.rank"] == 2
    assert trace.about["faultrun.what"] == "killed by SIGKILL"
    assert (trace.about["faultrun.lost_steps"], trace.about["faultrun.saves"]) == (40, 1)
    assert None not in trace.about.values()


def test_a_journal_without_times_of_day_has_no_traces() -> None:
    lines = [{**line, "at_utc": "?"} for line in lines_of(one_fault(resume_at=61))]
    account = account_of(lines)
    assert recovery_trace(account, account.faults[0]) is None
