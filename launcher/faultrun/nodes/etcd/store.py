"""Keys and values in etcd: read below a prefix, and write in transactions."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from faultrun.errors import assert_never
from faultrun.nodes.etcd.answers import EtcdReplaced, Json
from faultrun.nodes.etcd.gateway import WITHIN_S, AnswerLost, Gateway
from faultrun.nodes.etcd.transactions import Committed, GuardedWrite, GuardFailed, WriteKey
from faultrun.nodes.values.transaction import Absent, Compare, CreatedAt, Delete, NothingNewer, Unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    """One key's value, the revisions at which it was created and changed last, and its lease, 0 for none."""

    value: str
    created: int
    changed: int
    lease: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixState:
    """Everything below a prefix as it was at ``revision``; not to be changed."""

    keys: Mapping[str, KeyValue]
    revision: int


WriteOutcome = Committed | GuardFailed | AnswerLost
"""What became of a transaction. After AnswerLost only the watched state shows it."""


def read(gateway: Gateway, prefix: str, *, within_s: float = WITHIN_S) -> PrefixState:
    """Everything below ``prefix``, not older than this call."""
    answer = gateway.ask("kv/range", key_range(prefix), within_s=within_s).result
    found = dict(key_value(kv) for kv in answer.get("kvs", ()))
    return PrefixState(keys=found, revision=int(answer["header"]["revision"]))


def newest_revision(gateway: Gateway, prefix: str, *, within_s: float = WITHIN_S) -> int:
    """The store's revision, not older than this call. Costs one small answer whatever is below ``prefix``."""
    answer = gateway.ask("kv/range", {**key_range(prefix), "count_only": True}, within_s=within_s).result
    return int(answer["header"]["revision"])


def check_not_behind(gateway: Gateway, found: int, seen: int) -> None:
    """EtcdReplaced if the store, at revision ``found``, has lost what was read at ``seen``.

    An etcd of one member whose data is gone begins anew with the same name and the same cluster's id.
    """
    if found < seen:
        what = f"the etcd at {gateway.current} has gone back in time"
        hint = "an etcd that was restored is another one: start the run again"
        raise EtcdReplaced(what, because=f"it is at revision {found}, and was at {seen}", hint=hint)


def folders(gateway: Gateway, prefix: str, most: int, *, within_s: float = WITHIN_S) -> list[str]:
    """Names below ``prefix`` that a ``/`` follows, at most so many, in order; of each one key is read."""
    found: list[str] = []
    below = key_range(prefix)
    while len(found) < most:
        asked = {**below, "limit": "1", "keys_only": True}
        if not (first := gateway.ask("kv/range", asked, within_s=within_s).result.get("kvs", ())):
            break
        name, slash, _ = _text(first[0]["key"])[len(prefix) :].partition("/")
        if slash:
            found.append(name)
        start = f"{prefix}{name}"
        behind = key_range(f"{start}/")["range_end"] if slash else _base64(f"{start}\0".encode())
        below = {**below, "key": behind}
    return found


def transact(gateway: Gateway, write: GuardedWrite, *, within_s: float = WITHIN_S) -> WriteOutcome:
    """Write all or nothing, at most once. EtcdSilent and EtcdRefused: nothing was written."""
    compare, success = list(map(_compared, write.guards)), list(map(_operation, write.then))
    body = {"compare": compare, "success": success}
    if isinstance((answered := gateway.ask_once("kv/txn", body, within_s=within_s)), AnswerLost):
        return answered
    revision = int(answered.result["header"]["revision"])
    done = answered.result.get("succeeded", False)
    return Committed(revision=revision) if done else GuardFailed(revision=revision)


def key_range(prefix: str) -> Json:
    """The keys that begin with ``prefix``, as etcd wants them told."""
    start = prefix.encode()
    end = start[:-1] + bytes([start[-1] + 1])  # UTF-8 has no byte 255
    return {"key": _base64(start), "range_end": _base64(end)}


def key_value(kv: Mapping[str, Any]) -> tuple[str, KeyValue]:
    """A key, and what is told of it."""
    created = int(kv.get("create_revision", 0))
    changed = int(kv["mod_revision"])
    lease = int(kv.get("lease", 0))
    value = KeyValue(value=_text(kv.get("value", "")), created=created, changed=changed, lease=lease)
    return _text(kv["key"]), value


def _compared(guard: Compare) -> Json:
    match guard:
        case Absent():
            holds = {"target": "CREATE", "create_revision": "0", "result": "EQUAL"}
        case CreatedAt(created=revision):
            holds = {"target": "CREATE", "create_revision": str(revision), "result": "EQUAL"}
        case Unchanged(changed=revision):
            holds = {"target": "MOD", "mod_revision": str(revision), "result": "EQUAL"}
        case NothingNewer(revision=revision):
            older = {"target": "MOD", "mod_revision": str(revision + 1), "result": "LESS"}
            return {**key_range(guard.key), **older}
        case _:
            assert_never(guard)
    return {"key": _base64(guard.key.encode()), **holds}


def _operation(operation: WriteKey | Delete) -> Json:
    key = _base64(operation.key.encode())
    match operation:
        case WriteKey(value=value, lease=lease):
            return {"request_put": {"key": key, "value": _base64(value.encode()), "lease": str(lease)}}
        case Delete():
            return {"request_delete_range": {"key": key}}
        case _:
            assert_never(operation)


def _base64(text: bytes) -> str:
    return base64.b64encode(text).decode()


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode(errors="replace")
