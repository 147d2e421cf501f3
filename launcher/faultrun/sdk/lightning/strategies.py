"""Which strategies of Lightning and Fabric one rank alone can save: those where each rank has everything."""

from typing import Any

from faultrun.errors import FaultrunError

_WHOLE = frozenset({"SingleDeviceStrategy", "DDPStrategy", "DataParallelStrategy"})
_SHARDED = {
    "FSDPStrategy": "its parameters are spread over the ranks",
    "ModelParallelStrategy": "its parameters are spread over the ranks",
    "DeepSpeedStrategy": "DeepSpeed keeps and saves the state in a way of its own",
}


def check_strategy(strategy: Any) -> None:
    """FaultrunError for a strategy under which one rank has not all of the state."""
    names = [kind.__name__ for kind in type(strategy).__mro__]
    spread = next((_SHARDED[name] for name in names if name in _SHARDED), None)
    if spread is None and not _WHOLE.intersection(names):
        spread = "it is not shown that one rank has all of its state"
    if spread is None and getattr(strategy, "_model_averaging_period", None) is not None:
        spread = "its ranks train models of their own between two averages"
    if spread is not None:
        raise FaultrunError(
            f"{type(strategy).__name__} cannot be protected by sdk.lightning",
            because=spread,
            hint="leave it out: ModelCheckpoint's saves are resumed all the same; or strategy='ddp'",
        )


def check_optimizers(optimizers: list[Any]) -> None:
    """FaultrunError for an optimizer whose state is with other ranks."""
    for optimizer in optimizers:
        if hasattr(optimizer, "consolidate_state_dict"):
            raise FaultrunError(
                f"{type(optimizer).__name__} cannot be protected by sdk.lightning",
                because="its state is spread over the ranks, which may be dead",
                hint="use an optimizer that each rank has whole, or leave DyingGasp out",
            )
