"""Keys and transactions, in a real etcd."""

import pytest

from faultrun.nodes.etcd.answers import EtcdRefused
from faultrun.nodes.etcd.gateway import Gateway
from faultrun.nodes.etcd.lease import grant, revoke
from faultrun.nodes.etcd.store import folders, newest_revision, read, transact
from faultrun.nodes.etcd.transactions import MOST_OPERATIONS, Committed, GuardedWrite, GuardFailed, WriteKey
from faultrun.nodes.values.transaction import Absent, Compare, CreatedAt, Delete, NothingNewer, Unchanged


def write(gateway: Gateway, key: str, value: str, *guards: Compare) -> Committed | GuardFailed:
    done = transact(gateway, GuardedWrite(guards=guards, then=(WriteKey(key=key, value=value),)))
    assert isinstance(done, Committed | GuardFailed)
    return done


def test_what_was_written_below_a_prefix_is_read_with_its_revisions(gateway: Gateway, prefix: str) -> None:
    first = write(gateway, f"{prefix}a", "one")
    second = write(gateway, f"{prefix}ü/b", "zwei €")
    third = write(gateway, f"{prefix}a", "three")
    write(gateway, f"{prefix[:-1]}x/a", "elsewhere")
    state = read(gateway, prefix)
    assert {key: value.value for key, value in state.keys.items()} == {
        f"{prefix}a": "three",
        f"{prefix}ü/b": "zwei €",
    }
    a, b = state.keys[f"{prefix}a"], state.keys[f"{prefix}ü/b"]
    assert (a.created, a.changed) == (first.revision, third.revision)
    assert (b.created, b.changed) == (second.revision, second.revision)
    assert state.revision == third.revision + 1 == newest_revision(gateway, prefix)


def test_nothing_below_a_prefix_is_an_empty_state_and_not_an_error(gateway: Gateway, prefix: str) -> None:
    state = read(gateway, prefix)
    assert not state.keys
    assert state.revision > 0


def test_an_empty_value_is_kept(gateway: Gateway, prefix: str) -> None:
    write(gateway, prefix, "")
    assert read(gateway, prefix).keys[prefix].value == ""


def test_a_key_is_created_once(gateway: Gateway, prefix: str) -> None:
    assert isinstance(write(gateway, prefix, "first", Absent(key=prefix)), Committed)
    assert isinstance(write(gateway, prefix, "second", Absent(key=prefix)), GuardFailed)
    assert read(gateway, prefix).keys[prefix].value == "first"


def test_a_write_over_what_was_not_seen_is_not_done(gateway: Gateway, prefix: str) -> None:
    seen = write(gateway, prefix, "one").revision
    unchanged = Unchanged(key=prefix, changed=seen)
    assert isinstance(write(gateway, prefix, "two", unchanged), Committed)
    assert isinstance(write(gateway, prefix, "three", unchanged), GuardFailed)
    assert read(gateway, prefix).keys[prefix].value == "two"


def test_a_key_that_ended_and_came_back_is_another(gateway: Gateway, prefix: str) -> None:
    first = write(gateway, prefix, "one").revision
    same = CreatedAt(key=prefix, created=first)
    assert isinstance(write(gateway, prefix, "two", same), Committed)
    transact(gateway, GuardedWrite(then=(Delete(key=prefix),)))
    assert isinstance(write(gateway, prefix, "three", same), GuardFailed)
    write(gateway, prefix, "four")
    assert isinstance(write(gateway, prefix, "five", same), GuardFailed)


def test_a_write_is_not_done_once_something_below_a_folder_is_newer(gateway: Gateway, prefix: str) -> None:
    def nothing_newer_than(revision: int) -> NothingNewer:
        return NothingNewer(key=f"{prefix}node/", revision=revision)

    assert isinstance(write(gateway, f"{prefix}a", "1", nothing_newer_than(1)), Committed)
    write(gateway, f"{prefix}node/a", "x")
    seen = write(gateway, f"{prefix}node/b", "x").revision
    assert isinstance(write(gateway, f"{prefix}a", "2", nothing_newer_than(seen - 1)), GuardFailed)
    assert isinstance(write(gateway, f"{prefix}a", "3", nothing_newer_than(seen)), Committed)
    transact(gateway, GuardedWrite(then=(Delete(key=f"{prefix}node/b"),)))
    assert isinstance(write(gateway, f"{prefix}a", "4", nothing_newer_than(seen)), Committed)


def test_all_writes_are_done_at_one_revision_or_none_is(gateway: Gateway, prefix: str) -> None:
    write(gateway, f"{prefix}gone", "x")
    writes = (
        WriteKey(key=f"{prefix}a", value="1"),
        WriteKey(key=f"{prefix}b", value="2"),
        Delete(key=f"{prefix}gone"),
    )
    done = transact(gateway, GuardedWrite(guards=(Absent(key=f"{prefix}a"),), then=writes))
    assert isinstance(done, Committed)
    keys = read(gateway, prefix).keys
    assert {key: value.changed for key, value in keys.items()} == {
        f"{prefix}a": done.revision,
        f"{prefix}b": done.revision,
    }
    again = transact(gateway, GuardedWrite(guards=(Absent(key=f"{prefix}a"),), then=writes))
    assert isinstance(again, GuardFailed)


def test_as_many_operations_as_etcd_takes(gateway: Gateway, prefix: str) -> None:
    keys = [f"{prefix}{number}" for number in range(MOST_OPERATIONS)]
    whole = GuardedWrite(
        guards=tuple(Absent(key=key) for key in keys),
        then=tuple(WriteKey(key=key, value=key) for key in keys),
    )
    assert isinstance(transact(gateway, whole), Committed)
    assert set(read(gateway, prefix).keys) == set(keys)
    with pytest.raises(ValueError, match="at most 128"):
        GuardedWrite(then=tuple(WriteKey(key=key, value=key) for key in [*keys, "one more"]))


def test_a_write_with_a_lease_that_has_ended_is_refused_by_name(gateway: Gateway, prefix: str) -> None:
    lease = grant(gateway, 60).lease
    leased = GuardedWrite(then=(WriteKey(key=prefix, value="x", lease=lease),))
    assert isinstance(transact(gateway, leased), Committed)
    assert read(gateway, prefix).keys[prefix].lease == lease
    revoke(gateway, lease)
    assert prefix not in read(gateway, prefix).keys
    with pytest.raises(EtcdRefused) as refused:
        transact(gateway, leased)
    assert refused.value.failure.lease_gone
    revoke(gateway, lease)


def test_the_folders_below_a_prefix_are_found_whatever_their_names(gateway: Gateway, prefix: str) -> None:
    names = ["job/a", "job/b", "job-2/a", "job.x/a", "job", "job0/a", "plain"]
    write = GuardedWrite(then=tuple(WriteKey(key=f"{prefix}{name}", value="x") for name in names))
    assert isinstance(transact(gateway, write), Committed)
    assert folders(gateway, prefix, 9) == ["job-2", "job.x", "job", "job0"]
    assert folders(gateway, prefix, 2) == ["job-2", "job.x"]
    assert folders(gateway, f"{prefix}nothing", 2) == []
