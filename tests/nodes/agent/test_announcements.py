"""What a member process says of etcd to a person, and how often."""

import json
import math
import os
import selectors
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from faultrun.core.plan.waiting import Waiting
from faultrun.model.topology import RunId
from faultrun.nodes.agent.announcements import Announcements
from faultrun.nodes.agent.pipe_protocol import SAYS, Words
from faultrun.nodes.etcd.clock import boot_now
from faultrun.nodes.values.membership import Judgement, Remembered

AWAY = "etcd does not answer at e0:2379,e1:2379\n  because: e0:2379: Connection refused"
NO_LEADER = "etcd does not answer at e0:2379,e1:2379\n  because: e1:2379: etcdserver: no leader"
Said = Callable[[], list[str]]


@pytest.fixture
def spoken() -> Iterator[tuple[Announcements, Said]]:
    with speaking() as spoken:
        yield spoken


@contextmanager
def speaking(**how: float) -> Iterator[tuple[Announcements, Said]]:
    reads, writes = os.pipe()
    os.set_blocking(reads, False)

    def said() -> list[str]:
        return [json.loads(line)[SAYS] for line in os.read(reads, 1 << 16).splitlines()]

    with selectors.DefaultSelector() as selector:
        yield Announcements(RunId("job42"), 600.0, Words(writes, selector), 2, **how), said
    os.close(reads)
    os.close(writes)


def test_members_that_fail_one_by_one_are_one_trouble_and_the_next_silence_is_another(
    spoken: tuple[Announcements, Said],
) -> None:
    aloud, said = spoken
    heard_at_s = boot_now()
    for text in (AWAY, NO_LEADER, AWAY, NO_LEADER):
        aloud.trouble(text, heard_at_s)
    assert said() == [AWAY]
    aloud.trouble(NO_LEADER, boot_now())
    assert said() == [NO_LEADER]


def test_trouble_before_anything_was_heard_is_said_once(spoken: tuple[Announcements, Said]) -> None:
    aloud, said = spoken
    for text in (AWAY, NO_LEADER):
        aloud.trouble(text, -math.inf)
    aloud.trouble("etcd refused the user", -math.inf)
    assert said() == [AWAY, "etcd refused the user"]


def waiting(waits: Waiting) -> Judgement:
    return Judgement(remembered=Remembered(), acts=(), alive_until_s=0.0, judge_at_s=0.0, waits=waits)


def test_a_wait_that_ends_with_fewer_nodes_says_so_and_one_that_cannot_does_not() -> None:
    with speaking(short_wait_s=0.0) as (aloud, said):
        for waits in (Waiting(reason="b"), Waiting(reason="b (2 nodes cannot go on)", hopeless=True)):
            for _ in range(2):
                aloud.tell(waiting(waits))
        without, as_ever = said()
    assert without.startswith("waiting for b, until ")
    assert without.endswith("(--node_wait, 10 min; then without, with 2 nodes at least)")
    assert as_ever.endswith("(--node_wait, 10 min)")
