"""MindSpore, rehearsed without its runtime: imports, and one compilation by the front end.

A rehearsed training step would start the runtime, after which a program's own ``set_device`` and other
settings are refused ("The runtime has been initialized"). Compiling a network for export ends where the
device begins: no target is chosen, no kernel is made, and what a first step does before that is done (rules
of derivation imported, the parser's tables built).
"""

import signal
from importlib import import_module
from typing import Any

from .rehearsal import CannotStandBy, Rehearsal

_PROVED = ("2.10.",)
"""Versions with which a worker was held against one that had not compiled before."""


class MindSporeRehearsal(Rehearsal):
    """Rehearses MindSpore: imports, and one compilation by the front end."""

    name = "mindspore"
    modules = ("mindspore", *(f"mindspore.{one}" for one in ("communication", "dataset", "nn", "train")))
    threads = 256
    """The front end keeps one, idle, from its first compilation on; on large machines perhaps a pool."""
    frozen = True
    """Each compilation has the collector look at all objects, and nearly all are MindSpore's modules."""

    def rehearse(self) -> str:
        """Compile a network once; return why that could not be, else "". CannotStandBy: it chose a device."""
        import mindspore

        if not mindspore.__version__.startswith(_PROVED):
            return f"no compilation: not proved with MindSpore {mindspore.__version__}"
        if (compiler := _front_end()) is None:
            return "no compilation: this MindSpore has another compiler"
        # A thread that stays behind must never take a signal that is the program's.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._compile(mindspore, compiler)
        except (RuntimeError, TypeError, ValueError) as error:
            note = f"no compilation: {str(error).strip().splitlines()[0][:200]}"
        else:
            note = ""
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if _has_a_device():
            raise CannotStandBy("the rehearsal chose a device")
        return note

    def _compile(self, mindspore: Any, compiler: Any) -> None:
        """A tiny classifier with its update. Zeros for weights: no source of random numbers is touched."""
        from mindspore import nn

        zeros = {"weight_init": "zeros", "bias_init": "zeros"}
        net = nn.SequentialCell(nn.Dense(4, 3, **zeros), nn.ReLU(), nn.Dense(3, 2, **zeros))
        loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
        optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
        train = nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer)
        train.set_train()
        images = mindspore.Tensor([[0.0] * 4] * 2, mindspore.float32)
        labels = mindspore.Tensor([0, 1], mindspore.int32)
        compiler.compile(train, images, labels, phase="export", do_convert=False)


def _front_end() -> Any:
    """What ``Cell.compile`` calls; None where it is not at the places that are known."""
    for place in ("mindspore.graph.api", "mindspore.common.api"):
        try:
            found = getattr(import_module(place), "_cell_graph_executor", None)
        except ImportError:
            continue
        if found is not None:
            return found
    return None


def _has_a_device() -> bool:
    """Whether MindSpore's runtime has got a device, which a program could then choose no more."""
    from mindspore import _c_expression

    settings = getattr(_c_expression, "DeviceManagerConf", None)
    return settings is not None and bool(settings.get_instance().is_device_enable())
