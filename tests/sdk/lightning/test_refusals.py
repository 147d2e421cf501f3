"""What sdk.lightning refuses, and that it leaves everything alone where faultrun has started nothing."""

from pkgutil import resolve_name
from typing import Any

import pytest

from faultrun.errors import FaultrunError
from faultrun.sdk.session import Session
from faultrun.sdk.worker.worker import Worker
from support.machine.installed import need

need("lightning")

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def ours() -> Any:
    """``sdk.lightning``, imported late: Lightning takes seconds in every process that collects this file."""
    from faultrun.sdk import lightning

    return lightning


@pytest.mark.parametrize(
    "spread",
    [
        "pytorch.strategies.FSDPStrategy",
        "pytorch.strategies.ModelParallelStrategy",
        "pytorch.strategies.DeepSpeedStrategy",
        "fabric.strategies.FSDPStrategy",
    ],
)
def test_a_strategy_whose_ranks_have_not_all_is_refused(ours: Any, spread: str) -> None:
    kind: Any = resolve_name(f"lightning.{spread}")
    with pytest.raises(FaultrunError, match=r"cannot be protected by sdk\.lightning"):
        ours.strategies.check_strategy(kind.__new__(kind))


def test_an_optimizer_whose_state_is_with_others_is_refused(ours: Any) -> None:
    class Spread:
        def consolidate_state_dict(self) -> None:
            """Talks to all ranks."""

    with pytest.raises(FaultrunError, match="Spread cannot be protected"):
        ours.strategies.check_optimizers([Spread()])


def test_a_strategy_whose_ranks_have_all_is_taken(ours: Any) -> None:
    from lightning.pytorch import strategies

    ours.strategies.check_strategy(strategies.DDPStrategy())
    ours.strategies.check_strategy(strategies.SingleDeviceStrategy("cpu"))


def test_as_a_callback_of_fabric_it_says_what_to_call(ours: Any) -> None:
    gasp = ours.DyingGasp()
    gasp._worker = Worker(Session())
    with pytest.raises(FaultrunError, match="protects nothing in Fabric"):
        gasp.on_after_optimizer_step(strategy=None, optimizer=None)


def test_without_faultrun_it_is_a_callback_that_does_nothing(ours: Any) -> None:
    from lightning.pytorch import Callback

    gasp = ours.DyingGasp("/proc/none")
    assert isinstance(gasp, Callback)
    assert gasp.ckpt_path is None
    assert gasp.state_dict() == {}
    gasp.on_after_optimizer_step(strategy=None, optimizer=None)
