"""Two equal MindSpore trainings in one process, some steps in turn: one with ``DyingGasp``. Prints JSON."""

import json
import sys
import time
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
from mindspore import nn

from benchmarks.jobs.mindspore_parts import Rows
from faultrun import sdk

TURNS, STEPS, BATCH = int(sys.argv[1]), 15, 256
WARM_UP_TURNS = 2


class Clock(ms.train.Callback):  # type: ignore[misc]  # MindSpore has no types
    """Notes when each step begins; what a step costs includes the callbacks at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.began_s: list[float] = []

    def on_train_step_begin(self, _run_context: Any) -> None:
        """Note the time."""
        self.began_s.append(time.perf_counter())


def main() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    gasp = sdk.mindspore.DyingGasp("net", sys.argv[2])
    models = {"under_s": model(), "bare_s": model()}
    rows = Rows(0, STEPS * BATCH, 784)
    data = {name: ds.GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(BATCH) for name in models}
    steps: dict[str, list[float]] = {"under_s": [], "bare_s": []}
    for turn in range(TURNS + WARM_UP_TURNS):
        for name in sorted(models, reverse=turn % 2 == 0):
            clock = Clock()
            callbacks = [clock, gasp] if name == "under_s" else [clock]
            models[name].train(1, data[name], callbacks=callbacks, dataset_sink_mode=False)
            if turn >= WARM_UP_TURNS:
                between = zip(clock.began_s[1:], clock.began_s, strict=False)
                steps[name] += [after - before for after, before in between]
    every, copy_s, step_s = gasp.cost
    print(json.dumps({**steps, "every": every, "copy_s": copy_s, "step_s": step_s}), flush=True)


def model() -> Any:
    net = nn.SequentialCell(nn.Dense(784, 512), nn.ReLU(), nn.Dense(512, 512), nn.ReLU(), nn.Dense(512, 10))
    return ms.Model(net, nn.CrossEntropyLoss(), nn.Momentum(net.trainable_params(), 0.01, 0.9))


if __name__ == "__main__":
    main()
