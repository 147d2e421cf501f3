"""What sdk.lightning refuses, and that it leaves everything alone where faultrun has started nothing."""

from typing import Any

import pytest

pytest.importorskip("lightning")

from lightning.fabric import strategies as fabric_strategies
from lightning.pytorch import Callback, strategies

from faultrun.errors import FaultrunError
from faultrun.sdk import lightning as sdk_lightning
from faultrun.sdk.lightning.strategies import check_optimizers, check_strategy
from faultrun.sdk.session import Session
from faultrun.sdk.worker import Worker

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize(
    "spread",
    [
        strategies.FSDPStrategy,
        strategies.ModelParallelStrategy,
        strategies.DeepSpeedStrategy,
        fabric_strategies.FSDPStrategy,
    ],
)
def test_a_strategy_whose_ranks_have_not_all_is_refused(spread: Any) -> None:
    with pytest.raises(FaultrunError, match=r"cannot be protected by sdk\.lightning"):
        check_strategy(spread.__new__(spread))


def test_an_optimizer_whose_state_is_with_others_is_refused() -> None:
    class Spread:
        def consolidate_state_dict(self) -> None:
            """Talks to all ranks."""

    with pytest.raises(FaultrunError, match="Spread cannot be protected"):
        check_optimizers([Spread()])


def test_a_strategy_whose_ranks_have_all_is_taken() -> None:
    check_strategy(strategies.DDPStrategy())
    check_strategy(strategies.SingleDeviceStrategy("cpu"))


def test_as_a_callback_of_fabric_it_says_what_to_call(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(Session())
    monkeypatch.setattr("faultrun.sdk.lightning.callback.worker", lambda: worker)
    gasp = sdk_lightning.DyingGasp()
    with pytest.raises(FaultrunError, match="protects nothing in Fabric"):
        gasp.on_after_optimizer_step(strategy=None, optimizer=None)


def test_without_faultrun_it_is_a_callback_that_does_nothing() -> None:
    gasp = sdk_lightning.DyingGasp("/proc/none")
    assert isinstance(gasp, Callback)
    assert gasp.ckpt_path is None
    assert gasp.state_dict() == {}
    gasp.on_after_optimizer_step(strategy=None, optimizer=None)
