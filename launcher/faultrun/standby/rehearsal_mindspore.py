"""MindSpore, rehearsed on the processor: imports, and a network that is compiled and trained for two steps.

Before the rank is known and outside of any cluster. Where another device is
the target it is only imported: what a first operation does to a device cannot
be taken back.
"""

import sys
import warnings
from typing import Any

from .package_files import Identity, identity


def make() -> "MindSporeRehearsal":
    """The rehearsal of MindSpore."""
    return MindSporeRehearsal()


class MindSporeRehearsal:
    """See ``Rehearsal``. Its runtime starts pools of threads with the first graph, which stay."""

    name = "mindspore"
    leaves_threads = True

    def __init__(self) -> None:
        self._files: Identity | None = None

    def load(self) -> None:
        """See ``Rehearsal``."""
        import mindspore
        import mindspore.communication
        import mindspore.dataset
        import mindspore.nn
        import mindspore.train

        self._files = identity(mindspore)

    def rehearse(self) -> str:
        """See ``Rehearsal``."""
        import mindspore

        if mindspore.get_context("device_target") != "CPU":
            return "nothing is rehearsed on an accelerator"
        mode = mindspore.get_context("mode")
        generator = mindspore.get_rng_state()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                mindspore.set_context(mode=mindspore.GRAPH_MODE)
                self._train()
        finally:
            mindspore.set_context(mode=mode)
            mindspore.set_rng_state(generator)
        return ""

    def _train(self) -> None:
        import numpy
        from mindspore import dataset, nn, train

        class Samples:
            def __len__(self) -> int:
                return 4

            def __getitem__(self, index: int) -> tuple[Any, Any]:
                return numpy.zeros(4, numpy.float32), numpy.array(0, numpy.int32)

        net = nn.SequentialCell(nn.Flatten(), nn.Dense(4, 3), nn.ReLU(), nn.Dense(3, 2))
        samples = dataset.GeneratorDataset(
            Samples(), ["image", "label"], shuffle=False, python_multiprocessing=False
        ).batch(2)
        optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9)
        train.Model(net, nn.CrossEntropyLoss(), optimizer).train(1, samples, dataset_sink_mode=False)

    def changed(self) -> str:
        """See ``Rehearsal``."""
        import mindspore

        return "" if identity(mindspore) == self._files else "MindSpore was changed on the disk"

    def reseed(self) -> None:
        """See ``Rehearsal``: initial weights are drawn with numpy's generator."""
        sys.modules["numpy"].random.seed()
