"""The state in this rank's memory: whether it is that of a whole step, and how it becomes the common one."""

from collections.abc import Callable
from typing import Any

from faultrun.sdk.stay.common_step import NOTHING, CommonStep, From
from faultrun.sdk.torch.group.ddp import Averaging
from faultrun.sdk.torch.group.transfer import exchanged, receive, send
from faultrun.sdk.torch.snapshots.state_copies import StateCopies
from faultrun.sdk.torch.state.boundary import Boundary
from faultrun.sdk.torch.state.rng import SEEDED, digests_of
from faultrun.sdk.torch.state.trees import copied
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.update_lock import UpdatePhase


class ElsewhereInTheScript(Exception):
    """The common step lies where the script of this rank cannot go on; the message says why."""


class LiveState:
    """Knows whether a rank's live state is whole, and makes it the common one. Main thread.

    ``ends_step`` counts a step that turned out to be whole, as the script would.
    """

    def __init__(self, training: Training, ends_step: Callable[[], None]) -> None:
        self._training, self._ends_step = training, ends_step
        self.is_whole = True
        """Whether it is a step's; a newcomer's is not, before it has taken its place."""

    @property
    def step(self) -> int:
        """The step of the live state; NOTHING if it is not that of a whole step."""
        history = self._training.history
        return history[-1].position.step if self.is_whole and history else NOTHING

    def interrupted(self) -> None:
        """Look whether the state is whole: no update has begun, or nothing of the next step is missing."""
        self._training.is_broken_off()
        self.is_whole = self._survived() or self._restored()

    def become(self, common: CommonStep, memory: StateCopies, averaging: Averaging, device: Any) -> None:
        """Have the state of ``common``, and send it to those that take it from here.

        RuntimeError: a rank is gone. ``device``: where collectives of the group find their tensors.
        ElsewhereInTheScript: it has that state, and can save it.
        """
        training, session = self._training, self._training.writer.session
        rank = session.rank
        layouts = averaging.layouts
        if common.giver == NOTHING:
            layouts = _known(layouts, rank, device)
        source, alike = common.sources[rank], self._numbers_alike(common, device)
        if rank == common.giver:
            for taker in common.takers:
                # each taker's own random numbers come from its own notes
                state = training.state_at(self._end_of_step(common.epochs[taker]))
                send({"state": state, "layouts": layouts, "life": session.life}, taker, device)
        if source is From.ITSELF:
            training.lock.begin()
            training.put_back()
        else:
            self.is_whole = False  # until it is
            training.lock.begin()
            if source is From.SNAPSHOT:
                training.load(memory.read(common.step))
            else:
                got = receive(common.giver, device)
                training.load(got["state"], alike)
                layouts, session.trained_in = got["layouts"], got["life"]
                if not memory.put_own(common.step):
                    training.tell_whose_buffers(common.giver)
        memory.went_back(common.step)
        averaging.enters(layouts)
        training.came_back()
        self.is_whole = True
        is_open = training.in_loop and not training.redo.in_function  # which the script itself opens anew
        why = training.reading.why_not_at(training.position) if is_open and source is not From.ITSELF else ""
        if len(layouts) != len(averaging.layouts):
            why = "it has made more or fewer DistributedDataParallel than its peers"
        if why:
            raise ElsewhereInTheScript(why)

    def _numbers_alike(self, common: CommonStep, device: Any) -> tuple[str, ...]:
        """Random numbers that are the same on all ranks that have the state, as far as two can show it."""
        have = [rank for rank, source in enumerate(common.sources) if source is From.ITSELF]
        if not common.takers or len(have) == 1:
            return ()
        training, own = self._training, [0] * len(SEEDED)
        if training.writer.session.rank in have:
            own = digests_of(training.recorder.read(training.history[-1].rng))
        of_all = exchanged(own, device)
        return tuple(name for at, name in enumerate(SEEDED) if len({of_all[rank][at] for rank in have}) == 1)

    def _end_of_step(self, epoch: int) -> Boundary:
        """The newest boundary, or one of the same step in ``epoch``: who is in that has not left it yet.

        What this rank has done between the two epochs, the other does itself.
        """
        history = self._training.history
        of_step = [one for one in history if one.position.step == history[-1].position.step]
        of_epoch = [one for one in of_step if one.position.epoch == epoch]
        return (of_epoch or of_step)[-1]

    def _restored(self) -> bool:
        """From the copy, if that is of the last boundary: steps before it are not made again here."""
        training, kept = self._training, self._training.kept
        if kept is None or kept[0].position != training.history[-1].position:
            return False
        training.lock.begin()
        training.parts.updated.go_home()
        training.load(copied(kept[1]))
        training.kept = kept
        training.came_back()
        return True

    def _survived(self) -> bool:
        training = self._training
        if training.lock.phase is UpdatePhase.CLEAN:
            training.parts.updated.go_home()
            return bool(training.history) and not training.is_touched
        if training.lock.phase is not UpdatePhase.UPDATED or not training.history:
            return False
        if training.whole_now() is None:
            return False
        self._ends_step()
        return True


def _known(layouts: list[Any], rank: int, device: Any) -> list[Any]:
    """In which all ranks add up gradients: those of the first that knows. RuntimeError: a rank is gone."""
    knows = [one for (one,) in exchanged([int(bool(layouts) and None not in layouts)], device)]
    if 1 not in knows:
        return layouts
    if rank != (giver := knows.index(1)):
        return layouts if knows[rank] else list(receive(giver, device))
    for taker in (one for one, there in enumerate(knows) if not there):
        send(layouts, taker, device)
    return layouts
