"""Parts of the MindSpore helper that need no other rank: how often to copy, names, contents, old classes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.mindspore, pytest.mark.slow]


@pytest.fixture
def environment() -> Iterator[None]:
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def test_copies_take_less_than_one_percent_of_the_time() -> None:
    from faultrun.sdk.mindspore.interval import Interval

    interval = Interval(None)
    copies = 0
    for _ in range(3000):
        if interval.stepped(0.010):
            copies += 1
            interval.copied(0.0004)
    assert interval.every == 4
    assert copies * 0.0004 < 0.0101 * 3000 * 0.010


def test_a_cheap_copy_is_made_at_every_step_and_an_interval_that_is_given_is_kept() -> None:
    from faultrun.sdk.mindspore.interval import Interval

    cheap, given = Interval(None), Interval(7)
    copies = {cheap: 0, given: 0}
    for _ in range(70):
        for interval in (cheap, given):
            if interval.stepped(0.1):
                copies[interval] += 1
                interval.copied(0.0005)
    assert (copies[cheap], copies[given]) == (70, 10)
    with pytest.raises(ValueError, match="at least 1"):
        Interval(0)


def test_the_names_that_are_taken_get_mindspores_own_suffix(tmp_path: Path) -> None:
    from faultrun.sdk.mindspore.files import breakpoint_names
    from faultrun.sdk.mindspore.memory import HostState, Place

    names = breakpoint_names(
        tmp_path, "net", HostState(place=Place(step=55, epoch=2, batch=15, step_num=55), arrays={})
    )
    assert names(0) == tmp_path / "net-2_15_breakpoint.ckpt"
    assert names(2) == tmp_path / "net_2-2_15_breakpoint.ckpt"


def test_numbers_are_counted_as_the_configs_append_info_asks() -> None:
    import numpy as np

    from faultrun.sdk.mindspore.files import appended
    from faultrun.sdk.mindspore.memory import HostState, Place

    place = Place(step=55, epoch=2, batch=15, step_num=15)
    state = HostState(place=place, arrays={"w": np.zeros(2), "scale_sense": np.array([8.0], np.float32)})
    assert appended(state, {}) == {"epoch_num": 2, "step_num": 55, "global_step": 55, "loss_scale": 8.0}
    based = appended(state, {"epoch_num": 3, "step_num": 40})
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
    from faultrun.sdk.mindspore import DyingGasp, OptTFTWrapper, TFTRegister

    with pytest.raises(TypeError, match="Optimizer"):
        OptTFTWrapper(object())
    with pytest.raises(ValueError, match="ckpt_save_path"):
        TFTRegister(0, "127.0.0.1", 30051)
    with pytest.raises(ValueError, match="prefix"):
        DyingGasp(prefix="a/b")
