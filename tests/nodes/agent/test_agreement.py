"""The supervisor's end of a member process, with a real forked one that does what a test says."""

import json
from pathlib import Path

from faultrun.journal.codec import decode
from faultrun.model.actions import RaiseAlarm
from support.machine.processes import lives
from support.machine.scripts import ended

PROGRAM = """
import os, signal, sys
from faultrun.journal.codec import encode
from faultrun.model.actions import RaiseAlarm
from faultrun.model.observed.agreement import MembershipLost
from faultrun.model.events import RunFinished
from faultrun.model.observed.node_fact import NodeFact, NodeReady
from faultrun.nodes.agent.agreement import MemberLost, NodesAgreement
from faultrun.supervisor.launch.progress_page import LiveWorkers
from faultrun.supervisor.reactor import Reactor, RunClock
from faultrun.workers.deadman import Deadman
import json, select

def said(fd, **words):
    os.write(fd, json.dumps(words).encode() + b"\\n")

def next_order(orders):
    while True:
        select.select([orders.bell], [], [])
        found, more = orders.received()
        yield from found
        if not more:
            return

def member(orders, fd):
    {member}

deadman, heard = Deadman("boot"), []
agreement = NodesAgreement(member, deadman, heard.append, {leaving_s})
reactor = Reactor(RunClock())
agreement.attach(reactor, LiveWorkers(reactor.clock))
fact = NodeFact(node="a", boot="b", at_s=1.0, incarnation=0, status=NodeReady())
"""


def printed(member: str, supervisor: str, leaving_s: float = 5.0) -> str:
    body = member.strip().replace("\n", "\n    ")
    done = ended(PROGRAM.replace("{member}", body).replace("{leaving_s}", str(leaving_s)) + supervisor)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_what_is_agreed_on_comes_back_as_events_and_the_deadline_before_them() -> None:
    member = """
over = RunFinished(at_s=2.0, incarnation=0, exit_code=0, why="every rank finished")
lost = MembershipLost(at_s=2.0, incarnation=0, why="no lease", boot="c")
said(fd, until=12.5)
said(fd, says="waiting for node b")
said(fd, tells=encode(over))
said(fd, tells=encode(lost))
for order in next_order(orders):
    pass
"""
    supervisor = """
events = []
while len(events) < 2:
    for event in reactor.wait():
        print(type(event).__name__, event.why, deadman.deadline.at_s)
        events.append(event)
print(heard, events[1].boot)
agreement.close()
"""
    assert printed(member, supervisor).splitlines() == [
        "RunFinished every rank finished 12.5",
        "MembershipLost no lease 12.5",
        "['waiting for node b'] c",
    ]


def test_statements_alarms_and_the_leave_are_given_in_their_order(tmp_path: Path) -> None:
    member = f"""
with open({str(tmp_path / "orders")!r}, "w") as log:
    for order in next_order(orders):
        print(json.dumps(order), file=log)
"""
    supervisor = """
agreement.publish(fact)
agreement.raise_alarm(RaiseAlarm(incarnation=3, why="rank 1 died", stays=True))
agreement.close()
"""
    printed(member, supervisor)
    stated, alarm, leave = map(json.loads, (tmp_path / "orders").read_text().splitlines())
    assert stated["fact"]["standing"] == "ready"
    raised = RaiseAlarm(incarnation=3, why="rank 1 died", stays=True)
    assert decode(alarm["alarm"], RaiseAlarm) == raised
    assert leave == {"leave": True}


def test_a_member_that_is_killed_ends_the_supervisor_with_a_reason() -> None:
    supervisor = """
os.kill(agreement.pid, signal.SIGKILL)
try:
    reactor.wait()
except MemberLost as error:
    print(error.exit_code, error)
agreement.close()
"""
    out = printed("for order in next_order(orders): pass", supervisor)
    assert out.startswith("70 the process that keeps this node in its run has ended\n  because: ")


def test_one_that_does_not_leave_is_ended() -> None:
    supervisor = """
os.kill(agreement.pid, signal.SIGSTOP)
agreement.publish(fact)
agreement.close()
print(agreement.pid)
"""
    pid = int(printed("signal.pause()", supervisor, leaving_s=0.1))
    assert not lives(pid)


def test_however_much_is_said_before_anybody_reads_nothing_is_lost() -> None:
    count = 5000
    member = f"""
for number in range({count}):
    said(fd, says=f"line {{number}} " + "x" * 200)
said(fd, tells=encode(RunFinished(at_s=2.0, incarnation=0, exit_code=0, why="the end")))
for order in next_order(orders):
    pass
"""
    supervisor = """
print([event.why for event in reactor.wait()], len(heard), heard[-1].split()[1])
agreement.close()
"""
    assert printed(member, supervisor) == f"['the end'] {count} {count - 1}\n"
