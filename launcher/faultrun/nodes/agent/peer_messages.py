"""What the member process says to those of other nodes, and hears from them, without the store."""

import selectors
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from faultrun.journal.codec import decode, encode
from faultrun.model.observed.hang import NodeSpoke
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.topology import BootId, NodeId
from faultrun.nodes.agent.agreement import MemberSetting
from faultrun.nodes.etcd.clock import boot_now
from faultrun.nodes.peers.exchange import Call, PeerListener, ask_all
from faultrun.nodes.peers.seal import Seal
from faultrun.nodes.protocol import lease_deadline
from faultrun.nodes.values.membership import AskPeers, OwnState, PeerAnswer, PeerQuestion, PeerWord, WarnPeers
from faultrun.nodes.values.roster import Alarm, PlanHeader, RosterEntry
from faultrun.platforms.ports import is_shut, port_in

_LONGEST_S = 1.0
_LONGEST_WORD, _MOST_LOOKED_FOR = 500, 16
_WARNS, _ASKS, _RANKS = "warns", "asks", "ranks"


class PeerMessages:
    """``boot`` is the name under which this node answers. ``ask`` and ``warn`` are tasks of a thread."""

    def __init__(
        self,
        setting: MemberSetting,
        selector: selectors.BaseSelector,
        own: Callable[[], OwnState | None],
        header: Callable[[], PlanHeader | None],
        of_ranks: Callable[[NodeSpoke], object],
        try_now: Callable[[], object],
    ) -> None:
        self.boot = setting.boot
        self._run_id = setting.run_id
        self._node = setting.terms.node
        self._times = setting.terms.times
        self._own, self._header, self._of_ranks, self._try_now = own, header, of_ranks, try_now
        self._answers: dict[tuple[NodeId, BootId], PeerAnswer] = {}
        self._warnings: dict[int, Alarm] = {}
        self._words: dict[tuple[NodeId, BootId], PeerWord] = {}
        at = (setting.host, port_in(setting.host, setting.ports))
        self._listener = PeerListener(at, selector, lambda: Seal(self._run_id, self.boot), self._reply)
        self.addr = f"{f'[{setting.host}]' if ':' in setting.host else setting.host}:{self._listener.port}"

    @property
    def answers(self) -> tuple[PeerAnswer, ...]:
        """The newest of each peer."""
        return tuple(self._answers.values())

    @property
    def warnings(self) -> tuple[Alarm, ...]:
        """What peers said directly."""
        return tuple(self._warnings.values())

    @property
    def words(self) -> tuple[PeerWord, ...]:
        """How far each peer said that it is."""
        return tuple(self._words.values())

    def cut_late(self) -> float | None:
        """Cut off callers that took too long; seconds until the next one does, None while none calls."""
        return self._listener.cut_late()

    def close(self) -> None:
        """Listen no longer."""
        self._listener.close()

    def ask(self, act: AskPeers) -> Callable[[], object]:
        """Put the question to every member at once."""
        asked_at_s = boot_now()
        within_s = min(_LONGEST_S, self._times.hold_s / 2)
        answers = ask_all(self._calls(act.members, {_ASKS: encode(act.question)}), within_s)
        found = {
            (one.node, one.boot): PeerAnswer(
                node=one.node,
                boot=one.boot,
                incarnation=int(said["incarnation"]),
                deaf=bool(said["deaf"]),
                asked_at_s=asked_at_s,
                status=NodeStatus(said["status"]),
            )
            for one, said in zip(act.members, answers, strict=True)
            if said is not None
        }
        return lambda: self._answered(found)

    def warn(self, act: WarnPeers) -> Callable[[], object]:
        """Tell every member that the incarnation is over."""
        ask_all(self._calls(act.members, {_WARNS: encode(act.alarm)}), _LONGEST_S)
        return lambda: None

    def look_for(self, header: PlanHeader, first: NodeId, members: Sequence[RosterEntry]) -> Iterator[str]:
        """Ports that cannot be reached from here, of ``members`` and where all meet on ``first``; it waits.

        No node need listen where the ranks will meet; a member listens where it says.
        """
        meet = (first, f"{header.master_addr}:{header.master_port}")
        for node, place in (meet, *((one.node, one.peer_addr) for one in members))[:_MOST_LOOKED_FOR]:
            host, _, port = place.rpartition(":")
            if node != self._node and is_shut(host.strip("[]"), int(port)):
                what = f"port {port} of node {node} is not reachable from {self._node}"
                yield f"{what}: a firewall? --master_port_range=A-B names ports that are open"

    def _answered(self, found: Mapping[tuple[NodeId, BootId], PeerAnswer]) -> None:
        self._answers.update(found)
        for one in found.values():
            self._note(one, one.asked_at_s)

    def _note(self, one: PeerQuestion | PeerAnswer, heard_at_s: float) -> None:
        """The newest word of each counts; an answer is no newer than its question."""
        if (before := self._words.get((one.node, one.boot))) is None or before.heard_at_s <= heard_at_s:
            node, boot, life = one.node, one.boot, one.incarnation
            word = PeerWord(node=node, boot=boot, incarnation=life, status=one.status, heard_at_s=heard_at_s)
            self._words[node, boot] = word

    def tell_of_ranks(
        self, members: tuple[RosterEntry, ...], incarnation: int, works: str
    ) -> Callable[[], object]:
        """Say to every other member at once what ours do (``NodeSpoke``), in a thread; it may be lost."""
        word = NodeSpoke(at_s=0.0, incarnation=incarnation, node=self._node, works=works[:_LONGEST_WORD])
        others = tuple(one for one in members if one.node != self._node)
        ask_all(self._calls(others, {_RANKS: encode(word)}), _LONGEST_S)
        return lambda: None

    def _calls(self, members: tuple[RosterEntry, ...], says: dict[str, Any]) -> list[Call]:
        return [Call(one.peer_addr, Seal(self._run_id, one.boot), says) for one in members]

    def _warned(self, alarm: Alarm) -> None:
        """Two may be on their way at once, and two nodes say different things: that none stays counts."""
        if (before := self._warnings.get(alarm.incarnation)) is None or before.stays:
            self._warnings = {alarm.incarnation: alarm, **dict(list(self._warnings.items())[-3:])}

    def _reply(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        if _WARNS in asked:
            alarm: Alarm = decode(asked[_WARNS], Alarm)
            self._warned(alarm)
            return {"heard": True}
        if _RANKS in asked:
            self._of_ranks(decode(asked[_RANKS], NodeSpoke))
            return {"heard": True}
        question: PeerQuestion = decode(asked[_ASKS], PeerQuestion)
        if (own := self._own()) is None:
            raise ValueError("nothing was stated here yet")
        now_s = boot_now()
        self._note(question, now_s)
        self._try_now()
        said = lease_deadline.answer(question, own.fact, self._header(), own.lease, self._times, now_s)
        return {"deaf": said.deaf, "incarnation": said.incarnation, "status": said.status.value}
