"""A node's statement is one flat object on the wire, whatever values hold it here; what was written is read.

``tests/data/node_facts.jsonl`` was written when one class served all statuses: some of each, with every word
at random.
"""

import json
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.journal.codec import TAG, CodecError, decode, encode
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.event_base import UNLESS_USED
from faultrun.model.incident import Incident, Save, Unsaved
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.observed.saves import SavesSeen
from faultrun.model.plan import Ledger
from faultrun.model.stop import StopSource
from faultrun.model.topology import BootId, NodeId
from support.nodes.node_facts import KINDS, flat, words_of
from support.places import DATA
from support.stories.generated import values

KEPT = [json.loads(line) for line in (DATA / "node_facts.jsonl").read_text().splitlines()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flat:
    """The class as it was when each status had every field; ``seen`` and ``unseen`` came later."""

    WIRE_NAME = "NodeFact"

    node: NodeId
    boot: BootId
    at_s: float
    incarnation: int
    status: NodeStatus = field(metadata={"wire": "standing"})
    incident: Incident | None = None
    stop: StopSource | None = None
    point: RecoveryPoint | None = None
    high_step: int = -1
    reached: int = field(default=-1, metadata=UNLESS_USED)
    master_port: int = 0
    failure: tuple[int, str] | None = None
    addr: str = ""
    more_points: tuple[RecoveryPoint, ...] = ()
    arrived: int = 0
    alarm: int = 0
    look: int = -1
    saves: tuple[Save, ...] = ()
    unsaved: tuple[Unsaved, ...] = ()
    native_scheduler: bool = False
    forming: bool = False
    kept: frozenset[int] = frozenset()
    usable: tuple[int, ...] = field(default=(), metadata=UNLESS_USED)
    faulty: tuple[int, ...] = field(default=(), metadata=UNLESS_USED)
    hangs: str = field(default="", metadata=UNLESS_USED)
    unfit: bool = field(default=False, metadata=UNLESS_USED)
    lacks: str = field(default="", metadata=UNLESS_USED)
    unseen: tuple[str, ...] = field(default=(), metadata=UNLESS_USED)
    meeting_port: int = field(default=0, metadata=UNLESS_USED)
    trains_on: bool = field(default=False, metadata=UNLESS_USED)
    ready: frozenset[int] = field(default=frozenset(), metadata=UNLESS_USED)
    heals: bool = field(default=False, metadata=UNLESS_USED)
    came_in_vain: bool = field(default=False, metadata=UNLESS_USED)
    open_port: int = field(default=0, metadata=UNLESS_USED)
    seat: int | None = field(default=None, metadata=UNLESS_USED)
    saved: str = field(default="", metadata=UNLESS_USED)
    ledger: Ledger | None = field(default=None, metadata=UNLESS_USED)
    seen: SavesSeen = field(default=SavesSeen(), metadata=UNLESS_USED)

    def as_its_status_says(self) -> "Flat":
        """Every word that its status does not have at its default."""
        has = {"status", *words_of(self.status)}
        return Flat(**{one.name: getattr(self, one.name) for one in fields(self) if one.name in has})


def test_the_flat_class_is_what_wrote_the_file() -> None:
    assert {data["standing"] for data in KEPT} == {status.value for status in NodeStatus}
    for data in KEPT:
        assert encode(decode(data, Flat)) == data
    since = {"status", "seen", "unseen", "trains_on", "ready", "heals", "came_in_vain"}
    written = set(Flat.__slots__) - since
    assert {key for data in KEPT for key in data} == {TAG, "standing", *written}


@pytest.mark.parametrize("status", NodeStatus)
@settings(max_examples=50)
@given(data=st.data())
def test_what_an_earlier_version_wrote_is_kept_alike(status: NodeStatus, data: st.DataObject) -> None:
    old = data.draw(st.one_of(values(Flat), st.sampled_from([decode(one, Flat) for one in KEPT])))
    old = Flat(**{one.name: getattr(old, one.name) for one in fields(old)} | {"status": status})
    read: NodeFact = decode(encode(old), NodeFact)
    plain = old.as_its_status_says()
    assert read.word is status
    assert flat(read) == {name: getattr(old, name) for name in words_of(status)}
    assert encode(read) == encode(plain)
    assert decode(encode(read), Flat) == plain


@pytest.mark.parametrize("status", NodeStatus)
@settings(max_examples=25)
@given(data=st.data())
def test_what_is_written_now_is_read_by_an_earlier_version(status: NodeStatus, data: st.DataObject) -> None:
    standing = data.draw(values(KINDS[status]))
    fact: NodeFact = replace(data.draw(values(NodeFact)), status=standing)
    older = decode(encode(fact), Flat)
    assert older == older.as_its_status_says()
    assert decode(encode(older), NodeFact) == fact


@pytest.mark.parametrize("standing", [None, "asleep", 3, [], {}], ids=repr)
def test_a_status_that_is_not_known_is_refused(standing: Any) -> None:
    with pytest.raises(CodecError):
        decode({**KEPT[0], "standing": standing}, NodeFact)
