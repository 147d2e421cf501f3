"""Run in a process of its own: real MindSpore trains a tiny net and leaves checkpoints in ``sys.argv[1]``.

Writes one JSON object to stdout: what the framework itself finds in some of the files.
"""

import json
import sys
from contextlib import suppress
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.train import Callback, CheckpointConfig, Model, ModelCheckpoint

STEPS_PER_EPOCH = 10


class Net(nn.Cell):  # type: ignore[misc,unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(4, 3)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.fc(x)


class StopAt(Callback):  # type: ignore[misc,unused-ignore]
    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step

    def on_train_step_end(self, run_context: object) -> None:
        if run_context.original_args().cur_step_num == self._step:  # type: ignore[attr-defined]
            raise SystemExit(143)


def dataset() -> object:
    rng = np.random.default_rng(0)
    rows = [
        (rng.random(4, dtype=np.float32), rng.random(3, dtype=np.float32)) for _ in range(STEPS_PER_EPOCH * 2)
    ]
    return ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(2)


def train(
    directory: Path,
    prefix: str,
    epochs: int,
    *,
    stop_at: int = 0,
    start: str = "",
    first: int = 0,
    **config: object,
) -> None:
    net = Net()
    optimizer = nn.Adam(net.trainable_params(), learning_rate=0.01)
    if start:
        ms.load_param_into_net(net, ms.load_checkpoint(start))
    saver = ModelCheckpoint(
        prefix, str(directory), CheckpointConfig(save_checkpoint_steps=5, keep_checkpoint_max=50, **config)
    )
    callbacks = [saver, *([StopAt(stop_at)] if stop_at else [])]
    model = Model(net, nn.MSELoss(), optimizer)
    with suppress(SystemExit):
        model.train(epochs, dataset(), callbacks=callbacks, dataset_sink_mode=False, initial_epoch=first)


def main() -> None:
    root = Path(sys.argv[1])
    ms.set_device("CPU")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    appended = ["epoch_num", "step_num"]
    train(root / "bare", "net", 2)
    train(root / "appended", "net", 3, append_info=appended)
    train(root / "crc", "net", 1, append_info=appended, crc_check=True)
    train(root / "gasp", "net", 3, stop_at=23, append_info=appended, exception_save=True)
    newest = root / "resumed/net-3_10.ckpt"
    train(newest.parent, "net", 3, append_info=appended)
    train(newest.parent, "net", 5, append_info=appended, start=str(newest), first=3)
    (root / "encrypted").mkdir()
    by_hand = [{"name": "w", "data": ms.Tensor(np.arange(4, dtype=np.float32))}]
    ms.save_checkpoint(
        by_hand,
        str(root / "hand/w.ckpt"),
        append_dict={"epoch_num": 3, "step_num": 12, "lr": 0.1, "note": "ü"},
    )
    ms.save_checkpoint(by_hand, str(root / "hand/bare.ckpt"))
    kinds = {
        "half": ms.Tensor(np.ones((2, 3)), ms.float16),
        "flag": ms.Tensor(True),
        "brain": ms.Tensor(np.ones(5), ms.bfloat16),
        "byte": ms.Tensor(np.ones(7), ms.int8),
    }
    ms.save_checkpoint(
        [{"name": name, "data": data} for name, data in kinds.items()],
        str(root / "hand/kinds.ckpt"),
        append_dict={"epoch_num": 1, "step_num": 1},
    )
    seen = {}
    plain = sorted(root.rglob("*.ckpt"))
    for mode in ("AES-GCM", "AES-CBC", "SM4-CBC"):
        ms.save_checkpoint(
            by_hand, str(root / f"encrypted/{mode}-1_5.ckpt"), enc_key=b"0123456789abcdef", enc_mode=mode
        )
    for path in plain:
        loaded = ms.load_checkpoint(str(path))
        seen[str(path.relative_to(root))] = {
            name: value if isinstance(value, str) else float(value.asnumpy().ravel()[0])
            for name, value in loaded.items()
            if isinstance(value, str) or value.dtype != ms.bfloat16
        }
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main()
