"""Parts of the MindSpore helper that need no other rank: how often to copy, names, contents, old classes."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faultrun.errors import FaultrunError

pytestmark = [pytest.mark.mindspore, pytest.mark.slow]


@pytest.fixture
def environment() -> Iterator[None]:
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize(
    ("given", "step_s", "copy_s", "every"),
    [(None, 0.01, 0.0004, 4), (None, 0.1, 0.0005, 1), (7, 0.1, 0.0005, 7)],
)
def test_copies_take_one_percent_of_the_time_at_most_unless_an_interval_is_given(
    given: int | None, step_s: float, copy_s: float, every: int
) -> None:
    from faultrun.sdk.snapshots.copy_interval import CopyInterval

    interval = CopyInterval(given)
    copied = [interval.copied(copy_s) for step in range(1, 3001) if interval.stepped(step, step_s)]  # type: ignore[func-returns-value]
    assert interval.every == every == round(3000 / len(copied))
    with pytest.raises(ValueError, match="at least 1"):
        CopyInterval(0)


def test_ranks_with_other_costs_copy_the_same_steps() -> None:
    """Of three ranks one copies slowly; after its first measurements all have copies of the same steps."""
    from faultrun.model.wire import INTERVAL_OFFSET, SLOT_BYTES, pack_number, widest_interval
    from faultrun.sdk.snapshots.copy_interval import CopyInterval

    page = bytearray(3 * SLOT_BYTES)

    def agree(rank: int, own: int) -> int:
        at = rank * SLOT_BYTES + INTERVAL_OFFSET
        page[at : at + 8] = pack_number(own)
        return widest_interval(bytes(page))

    costs_s = (0.0001, 0.0003, 0.0011)
    intervals = [CopyInterval(None, partial(agree, rank)) for rank in range(3)]
    copied: list[list[int]] = [[], [], []]
    for step in range(6, 100):  # resumed at step 5
        for rank in (step % 3, (step + 1) % 3, (step + 2) % 3):
            if intervals[rank].stepped(step, 0.01):
                intervals[rank].copied(costs_s[rank])
                copied[rank].append(step)
    assert [one.every for one in intervals] == [16, 16, 16]
    late = [[step for step in steps if step > 20] for steps in copied]
    assert late == [[32, 48, 64, 80, 96]] * 3


def test_the_names_that_are_taken_get_mindspores_own_suffix(tmp_path: Path) -> None:
    from faultrun.sdk.mindspore.provider import breakpoint_names
    from faultrun.sdk.worker.save_files import Position

    names = breakpoint_names(tmp_path, "net", Position(55, 2, 15))
    assert names(0) == tmp_path / "net-2_15_breakpoint.ckpt"
    assert names(2) == tmp_path / "net_2-2_15_breakpoint.ckpt"


def test_numbers_are_counted_as_the_configs_append_info_asks() -> None:
    import numpy as np

    from faultrun.sdk.mindspore.parameters import HostState
    from faultrun.sdk.mindspore.provider import appended
    from faultrun.sdk.worker.save_files import Position

    state = HostState(Position(55, 2, 15), {"w": np.zeros(2), "scale_sense": np.array([8.0], np.float32)})
    assert appended(state, {}, 15) == {"epoch_num": 2, "step_num": 55, "global_step": 55, "loss_scale": 8.0}
    based = appended(state, {"epoch_num": 3, "step_num": 40}, 15)
    assert (based["epoch_num"], based["step_num"]) == (5, 55)


@pytest.mark.usefixtures("environment")
def test_the_restore_strategy_is_what_faultrun_decided() -> None:
    from faultrun.sdk.mindspore import RestoreStrategyGenerator

    os.environ.update(RESTORE_RANKS="0,1", RESTORE_RANKS_MAP='{"0,8": 0, "1,9": 1}')
    strategy = RestoreStrategyGenerator().gen_fault_tolerance_strategy()
    assert strategy == ("0,1", '{"0,8": 0, "1,9": 1}')
    os.environ.update(RESTORE_RANKS="-1", RESTORE_RANKS_MAP="{}")
    assert RestoreStrategyGenerator().gen_fault_tolerance_strategy() == ("-1", None)


def test_old_classes_refuse_what_the_old_ones_refused() -> None:
    from faultrun.sdk.mindspore import ExceptionCheckpoint, OptTFTWrapper, TFTRegister

    with pytest.raises(TypeError, match="Optimizer"):
        OptTFTWrapper(object())
    with pytest.raises(ValueError, match="ckpt_save_path"):
        TFTRegister(0, "127.0.0.1", 30051)
    with pytest.raises(ValueError, match="prefix"):
        ExceptionCheckpoint(prefix="a/b")


def test_without_faultrun_a_gasp_is_a_callback_that_does_nothing_and_refuses_nothing() -> None:
    from faultrun.sdk.mindspore import DyingGasp

    gasp = DyingGasp(prefix="a/b", directory=5, config=5, every=0)  # type: ignore[arg-type]
    for name in dir(gasp):
        if name.startswith("on_"):
            getattr(gasp, name)(None)
    assert gasp.cost[1:] == (0.0, 0.0)


def test_a_gasp_that_could_never_save_is_refused_when_it_is_made(tmp_path: Path) -> None:
    from faultrun.sdk.mindspore import ExceptionCheckpoint

    (tmp_path / "ck").write_text("")
    with pytest.raises(FaultrunError, match="nothing can be saved in"):
        ExceptionCheckpoint(directory=tmp_path / "ck")


def test_updates_are_marked_without_a_word_in_the_script_and_what_else_changes_is_known() -> None:
    from mindspore import nn

    from faultrun.sdk.mindspore.parameters import begun_counter, mark_updates, updated_in_marks

    network = one_step_network()
    assert mark_updates(network)
    assert mark_updates(network), "twice is once"
    assert begun_counter(network) is not None
    marked = updated_in_marks(network)
    assert marked == {
        *("0.weight", "0.bias", "1.gamma", "1.beta"),
        *("moments.0.weight", "moments.0.bias", "moments.1.gamma", "moments.1.beta"),
    }
    others = {one.name for _, one in network.parameters_and_names()} - marked
    assert {"1.moving_mean", "1.moving_variance", "global_step"} <= others
    two = nn.CellList([one_step_network(), one_step_network()])
    assert not mark_updates(two), "nobody knows which of them updates last"


def test_a_state_saved_inside_a_step_has_nothing_of_that_step_in_it(tmp_path: Path) -> None:
    """Batch norm's averages have moved, the update has not begun: the step before is what is saved."""
    import numpy as np

    from faultrun.sdk.mindspore import parameters as ours
    from faultrun.sdk.mindspore.provider import MindSporeProvider
    from faultrun.sdk.session import Session
    from faultrun.sdk.worker.save_files import Folder, Position, Saved, SaveWriter
    from faultrun.sdk.worker.state_provider import SaveOrder
    from faultrun.sdk.worker.update_lock import NotSaved

    network = one_step_network()
    ours.mark_updates(network)
    memory = ours.HostMemory(network, ours.updated_in_marks(network))
    begun = ours.begun_counter(network)
    assert begun is not None
    written: list[ours.HostState] = []

    def write(state: ours.HostState) -> Saved:
        written.append(state)
        return Saved(path=str(tmp_path / "x"), step=7, size_bytes=0, took_s=0.0, digest="")

    provider = MindSporeProvider(SaveWriter(Folder(directory=tmp_path), Session()), write)
    provider.memory, provider.begun, provider.live = memory, begun, True
    provider.position = Position(7, 1, 7)
    provider.mark = provider.position, begun()
    parameters = {one.name: one for _, one in network.parameters_and_names()}
    parameters["1.moving_mean"].asnumpy()[:] = 9.0  # as the forward pass of step 8 does
    provider.lock.begin()
    provider.save(SaveOrder(until_s=time.monotonic() + 0.2))
    (state,) = written
    assert state.position.step == 7
    assert not np.any(state.arrays["1.moving_mean"])
    assert "tft_updates_begun" not in state.arrays
    parameters["tft_updates_begun"].asnumpy()[0] += 1
    with pytest.raises(NotSaved):  # an update has begun, and there is no copy
        provider.save(SaveOrder(until_s=time.monotonic() + 0.2))


def test_a_step_that_waits_for_a_dead_peer_keeps_no_save_waiting(tmp_path: Path) -> None:
    """In PyNative mode a step returns before it is computed: its end is where the main thread waits."""
    from faultrun.sdk.mindspore import DyingGasp
    from faultrun.sdk.session import Session
    from faultrun.sdk.worker.state_provider import SaveOrder

    network, ends = one_step_network(), threading.Event()
    nothing = dict.fromkeys(("point_for", "keep", "works_at", "step"), lambda *_: None)
    worker = SimpleNamespace(session=Session(), agree_on_interval=int, **nothing)
    gasp = type("Gasp", (DyingGasp,), {"_find_worker": staticmethod(lambda: worker)})("net", tmp_path)
    told = SimpleNamespace(train_network=network, batch_num=9, cur_step_num=1, cur_epoch_num=1)
    told.optimizer, told.network = None, network
    context = SimpleNamespace(original_args=lambda: told)
    for name in ("begin", "step_begin", "step_end"):
        getattr(gasp, f"on_train_{name}")(context)
    memory = gasp._provider.memory
    memory._parameters = dict.fromkeys(memory._parameters, SimpleNamespace(asnumpy=ends.wait))
    told.cur_step_num = 2
    with ThreadPoolExecutor() as threads:
        gasp.on_train_step_begin(context)
        threads.submit(gasp.on_train_step_end, context)
        saves = threads.submit(gasp._provider.save, SaveOrder(until_s=time.monotonic() + 3, leaves=True))
        try:
            saved = saves.result(timeout=20)
        finally:
            ends.set()
    assert (saved.step, Path(saved.path).name) == (1, "net-1_1_breakpoint.ckpt")


def one_step_network() -> Any:
    import mindspore as ms
    from mindspore import nn

    ms.set_device("CPU")
    net = nn.SequentialCell(nn.Dense(4, 3), nn.BatchNorm1d(3))
    optimizer = nn.Momentum(net.trainable_params(), nn.ExponentialDecayLR(0.1, 0.9, 4), 0.9)
    return nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)


def told_of(rank: int, world: int, full: int) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), FAULTRUN_WORLD_SIZE_FULL=str(full))


@pytest.mark.usefixtures("environment")
def test_fewer_ranks_read_the_samples_of_the_whole_world_in_the_same_steps() -> None:
    from faultrun.sdk.mindspore import SharedBatches

    def epochs(world: int) -> list[list[list[int]]]:
        """Of two epochs the samples of each step."""
        ranks = []
        for rank in range(world):
            told_of(rank, world, 4)
            ranks.append(SharedBatches(27, 3, seed=5))
        assert {len(one) for one in ranks} == {2}
        return [[sorted(chain.from_iterable(step)) for step in zip(*ranks, strict=True)] for _ in range(2)]

    whole = epochs(4)
    assert whole[0] != whole[1]
    assert all(len(set(samples)) == len(samples) == 12 for epoch in whole for samples in epoch)
    assert [epochs(world) for world in (1, 2, 3)] == [whole] * 3
    with pytest.raises(FaultrunError, match="no step in an epoch"):
        SharedBatches(11, 3)


@pytest.mark.usefixtures("environment")
def test_a_step_in_parts_is_the_step_and_its_loss_with_one_update() -> None:
    import mindspore
    import numpy as np
    from mindspore import nn

    from faultrun.sdk.mindspore import SharedBatches

    def step(world: int) -> tuple[float, list[float]]:
        told_of(0, world, 3)
        mindspore.set_seed(1)
        dense = nn.Dense(4, 1)
        batches = SharedBatches(12, 4)
        optimizer = nn.Momentum(dense.trainable_params(), 0.1, 0.9)
        cell = batches.train_step(nn.WithLossCell(dense, nn.MSELoss()), optimizer)
        assert (type(cell) is nn.TrainOneStepCell) == (world == 3)
        loss = float(cell(*(mindspore.Tensor(rows, mindspore.float32) for rows in data)).asnumpy())
        assert int(optimizer.global_step.asnumpy()[0]) == 1
        return loss, [float(one) for one in dense.weight.asnumpy().ravel()]

    random = np.random.default_rng(0)
    data = random.standard_normal((12, 4)), random.standard_normal((12, 1))
    whole, parts = step(3), step(1)
    assert parts[0] == pytest.approx(whole[0], rel=1e-5)
    assert parts[1] == pytest.approx(whole[1], rel=1e-5)
