"""A copy of everything below a prefix that follows every change and survives what happens to streams."""

import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faultrun.nodes.etcd.answers import EtcdReplaced
from faultrun.nodes.etcd.gateway import Gateway
from faultrun.nodes.etcd.prefix_watch import PrefixWatch
from faultrun.nodes.etcd.store import PrefixState, transact
from faultrun.nodes.etcd.transactions import Committed, GuardedWrite, WriteKey
from faultrun.nodes.values.transaction import Delete
from support.machine.processes import PATIENCE_S, wait_until
from support.nodes.etcd_cluster import EtcdMember, one_etcd

pytestmark = pytest.mark.long

Opener = Callable[..., Gateway]


class Watched:
    """A watch, and a way to wait until it has seen something."""

    def __init__(self, gateway: Gateway, prefix: str, *, silence_s: float = 60.0) -> None:
        self._rung = threading.Event()
        self.troubles: queue.Queue[Exception] = queue.Queue()
        self.watch = PrefixWatch(
            gateway, prefix, changed=self._rung.set, troubled=self.troubles.put, silence_s=silence_s
        )
        self.watch.start()

    def until(self, seen: Callable[[PrefixState], bool]) -> PrefixState:
        while True:
            state = self.watch.state()
            if state is not None and seen(state):
                return state
            assert self._rung.wait(PATIENCE_S), f"{state} at last, {list(self.troubles.queue)}"
            self._rung.clear()

    def until_values(self, *values: str) -> PrefixState:
        return self.until(lambda state: sorted(kv.value for kv in state.keys.values()) == sorted(values))


Watch = Callable[..., Watched]


@pytest.fixture
def watch() -> Iterator[Watch]:
    opened: list[Watched] = []

    def begin(gateway: Gateway, prefix: str, silence_s: float = 60.0) -> Watched:
        opened.append(Watched(gateway, prefix, silence_s=silence_s))
        return opened[-1]

    yield begin
    for watched in opened:
        watched.watch.close()


def put(gateway: Gateway, key: str, value: str) -> int:
    done = transact(gateway, GuardedWrite(then=(WriteKey(key=key, value=value),)))
    assert isinstance(done, Committed)
    return done.revision


def delete(gateway: Gateway, key: str) -> None:
    assert isinstance(transact(gateway, GuardedWrite(then=(Delete(key=key),))), Committed)


def test_nothing_was_read_is_not_nothing_is_there(gateway: Gateway, prefix: str, watch: Watch) -> None:
    idle = PrefixWatch(gateway, prefix, changed=lambda: None, troubled=lambda error: None)
    assert idle.state() is None
    assert watch(gateway, prefix).until(lambda state: True).keys == {}


def test_every_change_is_followed(gateway: Gateway, prefix: str, watch: Watch) -> None:
    put(gateway, f"{prefix}a", "before")
    watched = watch(gateway, prefix)
    first = watched.until_values("before")
    revision = put(gateway, f"{prefix}a", "after")
    second = watched.until_values("after")
    a = second.keys[f"{prefix}a"]
    assert (a.created, a.changed) == (first.keys[f"{prefix}a"].changed, revision)
    assert second.revision == revision
    put(gateway, f"{prefix}b", "b")
    watched.until_values("after", "b")
    delete(gateway, f"{prefix}a")
    watched.until_values("b")
    assert first.keys[f"{prefix}a"].value == "before"
    assert watched.troubles.empty()


def test_keys_elsewhere_are_not_told(gateway: Gateway, prefix: str, watch: Watch) -> None:
    watched = watch(gateway, f"{prefix}all/")
    put(gateway, f"{prefix}node/a", "not told")
    put(gateway, f"{prefix}all/a", "told")
    watched.until_values("told")


def test_what_changed_while_it_was_away_is_not_missed(gateway: Gateway, prefix: str, watch: Watch) -> None:
    watched = watch(gateway, prefix)
    for number in range(20):
        put(gateway, f"{prefix}{number}", str(number))
        gateway.suspect(gateway.current)
    delete(gateway, f"{prefix}0")
    watched.until_values(*map(str, range(1, 20)))
    assert watched.troubles.empty()


def test_a_silence_has_it_look_again(gateway: Gateway, prefix: str, watch: Watch) -> None:
    watched = watch(gateway, prefix, silence_s=0.02)
    for number in range(5):
        put(gateway, f"{prefix}{number}", str(number))
        watched.until_values(*map(str, range(number + 1)))


def test_revisions_that_were_compacted_away_are_read_again(
    member: EtcdMember, gateway: Gateway, open_gateway: Opener, prefix: str, watch: Watch
) -> None:
    watched = watch(open_gateway(member.endpoint), prefix)
    put(gateway, f"{prefix}a", "1")
    watched.until_values("1")
    fallen_behind = watched.watch
    with fallen_behind._lock:
        fallen_behind._revision = 1
    delete(gateway, f"{prefix}a")
    last = put(gateway, f"{prefix}b", "2")
    gateway.ask("kv/compaction", {"revision": str(last), "physical": True})
    fallen_behind._gateway.suspect(member.endpoint)
    watched.until_values("2")
    assert watched.watch.state() == watched.until(lambda state: state.revision >= last)


def test_a_member_that_is_started_again_is_followed_again(
    program: Path, tmp_path: Path, open_gateway: Opener, watch: Watch
) -> None:
    with one_etcd(tmp_path, program) as alone:
        gateway = open_gateway(alone.endpoint)
        watched = watch(gateway, "/x/")
        put(gateway, "/x/a", "1")
        watched.until_values("1")
        alone.kill()
        alone.start()
        alone.wait()
        put(gateway, "/x/b", "2")
        watched.until_values("1", "2")


def test_an_etcd_that_was_set_up_anew_is_told_and_not_believed(
    program: Path, tmp_path: Path, open_gateway: Opener, watch: Watch
) -> None:
    with one_etcd(tmp_path, program) as alone:
        watched = watch(open_gateway(alone.endpoint), "/x/")
        put(open_gateway(alone.endpoint), "/x/a", "1")
        watched.until_values("1")
        alone.kill()
        alone.name = "anew"
        alone.start()
        alone.wait()
        while not isinstance(error := watched.troubles.get(timeout=PATIENCE_S), EtcdReplaced):
            pass
        assert error.exit_code == 69
        watched.until_values("1")


def test_an_etcd_set_back_is_told_and_not_believed(gateway: Gateway, prefix: str, watch: Watch) -> None:
    watched = watch(gateway, prefix, silence_s=0.02)
    put(gateway, f"{prefix}a", "1")
    watched.until_values("1")
    with watched.watch._lock:
        watched.watch._revision += 1000
    error = watched.troubles.get(timeout=PATIENCE_S)
    assert isinstance(error, EtcdReplaced)
    assert "gone back in time" in error.what


def test_an_odd_message_is_trouble_and_the_watch_goes_on(
    gateway: Gateway, prefix: str, monkeypatch: pytest.MonkeyPatch, watch: Watch
) -> None:
    watched = watch(gateway, prefix)
    watched.until(lambda state: True)
    follow = watched.watch._apply
    monkeypatch.setattr(watched.watch, "_apply", lambda events: follow([{"kv": {}}]))
    put(gateway, f"{prefix}a", "1")
    assert isinstance(watched.troubles.get(timeout=PATIENCE_S), KeyError)
    monkeypatch.undo()
    watched.until_values("1")


def test_closing_ends_the_thread(gateway: Gateway, prefix: str, watch: Watch) -> None:
    watched = watch(gateway, prefix)
    watched.until(lambda state: True)
    watched.watch.close()
    wait_until(lambda: not watched.watch._thread._thread.is_alive(), what="the end of its thread")
