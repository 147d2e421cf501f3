"""A checkpoint as Lightning 2.6 makes one (``checkpoint_connector.dump_checkpoint``), in any thread, alone.

The small parts (counters, callbacks, schedulers, precision) are captured at every boundary;
parameters and the optimizers' states are read where they are.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from faultrun.sdk.lightning.progress import Counters, FitPlace, resumable
from faultrun.sdk.torch.loader.held_objects import is_of_library
from faultrun.sdk.torch.state.boundary import Objects, device_of, with_numbers
from faultrun.sdk.torch.state.own_attributes import own_states
from faultrun.sdk.torch.state.state_dict import Parts, unwrapped_optimizer

STATE_KEY = "DyingGasp"
"""Under which this callback's own state is in a checkpoint's ``callbacks``."""

_OTHER_LOOPS = ("validate_loop", "test_loop", "predict_loop")


def parts_of(trainer: Any, standing: Callable[[], dict[str, Any]]) -> Parts:
    """What of ``trainer`` is protected, once it has optimizers; ``standing`` tells where a fit goes on."""
    model = trainer.lightning_module
    return Parts(
        model=model,
        optimizers=tuple(map(unwrapped_optimizer, trainer.optimizers)),
        objects=Objects({**dict(_objects(trainer, standing)), **own_states(trainer.optimizers)}),
        device=device_of(model),
    )


def _objects(trainer: Any, standing: Callable[[], dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """All with a ``state_dict``, by where it belongs."""
    yield "loops", _Loops(trainer, standing)
    for callback in trainer.callbacks:
        if callback.state_key != STATE_KEY and overrides(callback, "state_dict"):
            yield f"callbacks {callback.state_key}", callback
    for number, config in enumerate(trainer.lr_scheduler_configs):
        yield f"lr_schedulers {number}", config.scheduler
    plugin = trainer.precision_plugin
    scaler = getattr(plugin, "scaler", None)
    if scaler is not None or overrides(plugin, "state_dict"):
        yield f"top {type(plugin).__qualname__}", plugin if scaler is None else scaler
    if (data := trainer.datamodule) is not None and overrides(data, "state_dict"):
        yield f"top {type(data).__qualname__}", data
    if any(_hooks(trainer)):
        yield "hooks", _Added(trainer)


class _Loops:
    """The counters of the fit, and where it goes on."""

    def __init__(self, trainer: Any, standing: Callable[[], dict[str, Any]]) -> None:
        self._counters = Counters(trainer.fit_loop)
        self._standing = standing

    def state_dict(self) -> dict[str, Any]:
        return {"numbers": self._counters.read(), "standing": self._standing()}


class _Added:
    """What hooks of ``on_save_checkpoint`` add to a checkpoint: which may change within a step."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        trainer = self._trainer
        before: dict[str, Any] = {
            **_head(trainer, trainer.current_epoch, trainer.global_step),
            "state_dict": trainer.lightning_module.state_dict(),
            "loops": {},
            "callbacks": {},
            "optimizer_states": [],
            "lr_schedulers": [],
        }
        after = dict(before)
        hooked(trainer, after, {})
        return {key: one for key, one in after.items() if key not in before}


def checkpoint_of(
    trainer: Any, ours: dict[str, Any], numbers: dict[str, Any], place: FitPlace
) -> dict[str, Any]:
    """Lightning's dict with what a guard's has in it. No hooks are called."""
    objects, position = ours["objects"], (ours["epoch"], ours["global_step"])
    optimizers = ours["optimizer"]
    return {
        **_head(trainer, *position),
        "state_dict": ours["model"],
        "loops": {
            "fit_loop": resumable(numbers, place),
            **{name: getattr(trainer, name).state_dict() for name in _OTHER_LOOPS},
        },
        "callbacks": {key: one for key, one in _under("callbacks", objects) if one},
        "optimizer_states": optimizers if isinstance(optimizers, list) else [optimizers],
        "lr_schedulers": [one for _, one in _under("lr_schedulers", objects)],
        **_hyper_parameters(trainer),
        **{key: with_numbers(one) for key, one in _under("top", objects) if one},
    }


def hooked(trainer: Any, checkpoint: dict[str, Any], captured: dict[str, Any]) -> None:
    """Call the hooks that change a checkpoint; what they had added at its place counts."""
    for hook in _hooks(trainer):
        hook(checkpoint)
    checkpoint.update(captured)


def overrides(one: Any, name: str) -> bool:
    """Whether the method is another than the empty one of Lightning's base class."""
    found = getattr(type(one), name)
    empty = (".callbacks.callback", ".core.hooks", ".core.datamodule", ".precision", "hparams_mixin")
    return not (is_of_library(found) and found.__module__.endswith(empty))


def _hooks(trainer: Any) -> Iterator[Callable[[dict[str, Any]], object]]:
    module = trainer.lightning_module
    for one in trainer.callbacks:
        if one.state_key != STATE_KEY and overrides(one, "on_save_checkpoint"):
            yield partial(one.on_save_checkpoint, trainer, module)
    if overrides(module, "on_save_checkpoint"):
        yield module.on_save_checkpoint


def _head(trainer: Any, epoch: int, step: int) -> dict[str, Any]:
    package = type(trainer.fit_loop).__module__.partition(".loops")[0]
    version = import_module(package).__version__
    return {"epoch": epoch, "global_step": step, "pytorch-lightning_version": version}


def _hyper_parameters(trainer: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in (trainer.lightning_module, trainer.datamodule):
        if one is None or not one.hparams:
            continue
        if hasattr(one, "_hparams_name"):
            found[one.CHECKPOINT_HYPER_PARAMS_NAME] = one._hparams_name
        if type(one.hparams).__module__.startswith("omegaconf"):
            found[one.CHECKPOINT_HYPER_PARAMS_KEY] = one.hparams
            found[one.CHECKPOINT_HYPER_PARAMS_TYPE] = type(one.hparams)
        else:
            found[one.CHECKPOINT_HYPER_PARAMS_KEY] = dict(one.hparams)
    return found


def _under(kind: str, objects: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, one in objects.items():
        if name.startswith(f"{kind} "):
            yield name.removeprefix(f"{kind} "), one
