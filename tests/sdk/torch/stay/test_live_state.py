"""How a rank's state becomes the common one, and of which life that says to be."""

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from faultrun.sdk.session import Session
from faultrun.sdk.stay.common_step import CommonStep, From
from faultrun.sdk.torch.group.ddp import Averaging
from faultrun.sdk.torch.state.rng import current_rng, digests_of, reseeded
from faultrun.sdk.torch.stay import live_state
from faultrun.sdk.torch.stay.live_state import LiveState
from faultrun.sdk.worker.save_files import Position

pytestmark = pytest.mark.torch


def boundary(step: int, epoch: int, batches: int) -> Any:
    return SimpleNamespace(position=Position(step, epoch, batches))


@pytest.mark.parametrize(("taker", "epoch"), [(2, 2), (1, 1), (-1, 2), (0, 2)])
def test_who_is_behind_in_the_last_step_of_an_epoch_that_the_giver_has_left_gets_its_end(
    taker: int, epoch: int
) -> None:
    """A place in the next epoch is none where its script can go on, and all would have to start again."""
    history = [boundary(9, 1, 4), boundary(10, 1, 5), boundary(10, 2, 0)]
    giver: Any = LiveState(SimpleNamespace(history=history), lambda: None)  # type: ignore[arg-type]
    assert giver._end_of_step(taker).position.epoch == epoch


def test_who_gets_a_state_from_a_peer_says_of_it_what_the_peer_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the files of a newcomer and of a survivor on two nodes would not be of one state."""
    survivor = Session(rank=0, world_size=2, incarnation=3, trained_in=1)
    newcomer = replace(survivor, rank=1, is_newcomer=True, trained_in=None)
    common = CommonStep(step=7, sources=(From.ITSELF, From.PEER), giver=0, epochs=(-1, -1))
    sent: list[Any] = []
    monkeypatch.setattr(live_state, "send", lambda state, *_: sent.append(state))
    monkeypatch.setattr(live_state, "receive", lambda *_: sent.pop())
    for session in (survivor, newcomer):
        does = SimpleNamespace(begin=lambda: None, put_own=lambda _: True, went_back=lambda _: None)
        training: Any = SimpleNamespace(
            writer=SimpleNamespace(session=session),
            history=[boundary(7, 0, 4)],
            state_at=lambda _: "state",
            lock=does,
            put_back=lambda: None,
            load=lambda *_: None,
            came_back=lambda: None,
            in_loop=False,
        )
        memory: Any = does
        LiveState(training, lambda: None).become(common, memory, Averaging(lambda: None), "cpu")
    assert (survivor.life, newcomer.life) == (1, 1)


def test_random_numbers_that_all_others_have_alike_are_those_of_a_newcomer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A script may draw from them what all ranks do together, such as which part of the model is trained."""
    here = current_rng()
    cpu, python, numpy = digests_of(here)
    rows = [[cpu, python, numpy], [0, 0, 0], [cpu + 1, python, numpy]]
    monkeypatch.setattr(live_state, "exchanged", lambda own, _: [own, *rows[1:]])
    training: Any = SimpleNamespace(
        writer=SimpleNamespace(session=Session(rank=0, world_size=3)),
        history=[SimpleNamespace(rng=0)],
        recorder=SimpleNamespace(read=lambda _: here),
    )
    among = {
        (From.ITSELF, From.PEER, From.ITSELF): ("python", "numpy"),
        (From.ITSELF, From.PEER, From.NOWHERE): (),  # one cannot show it
        (From.ITSELF, From.ITSELF, From.ITSELF): (),  # nobody asks
    }
    for sources, expected in among.items():
        common = CommonStep(step=7, sources=sources, giver=0, epochs=(-1, -1, -1))
        assert LiveState(training, lambda: None)._numbers_alike(common, "cpu") == expected
    new = reseeded(here, 1, ("python",))
    assert new.python == random.getstate()
    assert not new.cpu.equal(here.cpu)
