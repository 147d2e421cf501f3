"""A write that was done is done again only when somebody has seen it."""

from faultrun.nodes.agent.retry_times import Retries
from faultrun.nodes.etcd.gateway import AnswerLost
from faultrun.nodes.etcd.transactions import Committed, GuardFailed


def test_what_was_written_is_not_written_again_before_it_was_seen() -> None:
    retries = Retries()
    assert retries.is_due("write plan", 7)
    assert retries.written("write plan", Committed(revision=8), 7)
    assert not retries.is_due("write plan", 7), "what was judged is older than the write"
    assert not Retries().written("write plan", Committed(revision=8), 8), "a watch was faster than the answer"
    assert retries.is_due("write plan", 8)


def test_what_was_not_written_is_looked_at_again() -> None:
    retries = Retries()
    assert not retries.written("refused", GuardFailed(revision=8), 7)
    assert not retries.written("lost", AnswerLost(why="cut"), 7)
    assert len(list(retries.moments())) == 2
