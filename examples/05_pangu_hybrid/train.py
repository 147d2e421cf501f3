"""Hybrid parallel training on handwritten digits: model parallel times data parallel, as PanGu-Alpha does it.

MindSpore cuts a model over devices by itself only on Ascend and GPU. Here the same is done by hand, with
NumPy and one process for each rank, so that it runs anywhere: every hidden unit lives on one rank of a
model group, and the ranks that hold the same units form a data group. All that has to do with recovery is
as in PanGu-Alpha: MindSpore's own files for the checkpoints, the strategy and the replica groups, its
options, and the environment variables by which a rank learns whose checkpoint to load.
"""

import argparse
import json
import os
import threading
import time
import zlib
from collections.abc import Iterator
from multiprocessing.connection import Client, Connection, Listener, wait
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore.train import node_strategy_pb2 as straspb
from sklearn.datasets import load_digits

from faultrun import sdk

TRAIN_IMAGES = 1440  # of 1797; the rest is held out
HIDDEN = 64

Slice = dict[str, np.ndarray]
"""What one rank holds: its share of the hidden units, and the optimizer's momentum for it."""


class Cluster:
    """Sums arrays over groups of ranks. Rank 0 adds them up, in the order of ranks: always the same sum."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank = rank
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if rank == 0:
            listener = Listener(address, backlog=world_size)
            threading.Thread(target=self._add_up, args=(listener, world_size), daemon=True).start()
        self.hub = connected(address)

    def sum(self, group: tuple[int, ...], array: np.ndarray) -> np.ndarray:
        self.hub.send((group, self.rank, array))
        result: np.ndarray = self.hub.recv()  # EOFError when a rank is gone
        return result

    def meet(self, world_size: int) -> None:
        """Wait for all ranks: rank 0 must not leave before the last sum is made."""
        self.sum(tuple(range(world_size)), np.zeros(1))

    def _add_up(self, listener: Listener, world_size: int) -> None:
        ranks = [listener.accept() for _ in range(world_size)]
        waiting: dict[tuple[int, ...], dict[int, tuple[Connection, np.ndarray]]] = {}
        try:
            while True:
                for connection in wait(ranks):
                    assert isinstance(connection, Connection)
                    group, rank, array = connection.recv()
                    members = waiting.setdefault(group, {})
                    members[rank] = (connection, array)
                    if len(members) == len(group):
                        total = sum(members[one][1] for one in sorted(members))
                        for one in sorted(members, reverse=True):  # rank 0 last: with it we are gone
                            members[one][0].send(total)
                        del waiting[group]
        except (EOFError, OSError):
            for connection in ranks:  # one is gone: nobody shall wait for it
                connection.close()


def connected(address: tuple[str, int]) -> Connection:
    """A connection to rank 0, which may not listen yet."""
    deadline = time.monotonic() + 120
    while (connection := attempt(address)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody listens at {address}")
        time.sleep(0.1)
    return connection


def attempt(address: tuple[str, int]) -> Connection | None:
    try:
        return Client(address)
    except ConnectionRefusedError:
        return None


def main() -> None:
    args = read_arguments()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    width = args.op_level_model_parallel_num
    first = rank - rank % width
    model_group = tuple(range(first, first + width))
    data_group = tuple(range(rank % width, world_size, width))
    write_group_info(model_group, data_group)
    keep_strategy(args, rank, width)

    images, labels, test_images, test_labels = load_data()
    held = first_weights(rank % width, width)
    steps_per_epoch = TRAIN_IMAGES // (args.batch_size * len(data_group))
    step = restore(args, rank, held)
    last_step = args.epoch_size * steps_per_epoch
    cluster = Cluster(rank, world_size)
    share = slice(rank // width, None, len(data_group))
    for batch in batches(args, step, steps_per_epoch, len(data_group)):
        time.sleep(args.step_delay)
        mine = batch[share]
        loss = train_step(args, cluster, held, (model_group, data_group), images[mine], labels[mine])
        step += 1
        say(f"rank {rank} epoch {(step - 1) // steps_per_epoch + 1} step {step} loss {loss:.6f}")
        if step % args.save_checkpoint_steps == 0 or step == last_step:
            save(args, rank, held, step, steps_per_epoch)
    logits, _ = forward(cluster, held, model_group, test_images)
    cluster.meet(world_size)
    accuracy = float((logits.argmax(axis=1) == test_labels).mean())
    weights = b"".join(held[name].tobytes() for name in sorted(held))
    say(
        f"final step {step} accuracy {accuracy:.4f} on {len(test_labels)} digits,"
        f" weights {zlib.crc32(weights):08x}"
    )


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="the options of PanGu-Alpha that matter for recovery")
    parser.add_argument("--op_level_model_parallel_num", type=int, default=2)
    parser.add_argument("--epoch_size", type=int, default=6)
    parser.add_argument("--batch_size", type=int, default=32, help="of each data parallel replica")
    parser.add_argument("--learning_rate", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--save_checkpoint_path", default="checkpoints")
    parser.add_argument("--save_checkpoint_steps", type=int, default=10)
    parser.add_argument("--keep_checkpoint_max", type=int, default=2)
    parser.add_argument("--ckpt_name_prefix", default="pangu")
    parser.add_argument("--pre_trained", default="", help="a checkpoint file of the step to go on from")
    parser.add_argument("--strategy_load_ckpt_path", default="")
    parser.add_argument("--step_delay", type=float, default=0.0, help="seconds by which to slow a step down")
    return parser.parse_args()


def write_group_info(model_group: tuple[int, ...], data_group: tuple[int, ...]) -> None:
    """Say which ranks hold the same slice; on Ascend MindSpore does so when it compiles the graph."""
    path = os.environ.get("GROUP_INFO_FILE") or os.environ.get("FAULTRUN_GROUP_INFO_FILE")
    if not path:
        return
    info = straspb.ParallelGroupMap()
    for ranks in (model_group, data_group):
        item = info.parallel_group_item.add()
        item.group_name = f"{len(ranks)}-{zlib.crc32(repr(ranks).encode())}"
        item.parallel_group_ranks.dim.extend(ranks)
    info.ckpt_restore_rank_list.dim.extend(data_group)
    target = Path(path)
    partial = target.with_suffix(".tmp")
    partial.write_bytes(info.SerializeToString())
    partial.replace(target)


def keep_strategy(args: argparse.Namespace, rank: int, width: int) -> None:
    """Write how the layers are cut; refuse checkpoints that were cut otherwise."""
    strategy = straspb.ParallelStrategyMap(current_stage=1)
    for node, dims in (("hidden", (1, width)), ("logits", (width, 1))):
        item = strategy.parallel_strategy_item.add(node_name=node)
        item.parallel_strategys.stage = 1
        item.parallel_strategys.parallel_strategy.add(dim=dims)
    loaded = Path(args.strategy_load_ckpt_path)
    if args.strategy_load_ckpt_path and loaded.exists():
        if straspb.ParallelStrategyMap.FromString(loaded.read_bytes()) != strategy:
            raise SystemExit(f"{loaded} is of another cut than {width} ranks a model")
    elif rank == 0:
        Path("strategy.ckpt").write_bytes(strategy.SerializeToString())


def restore(args: argparse.Namespace, rank: int, held: Slice) -> int:
    """Load this rank's slice, from its own checkpoint or a replica's; return the steps that are done.

    As PanGu-Alpha does it: every rank of RESTORE_RANKS must have its file, all
    of one size, and RESTORE_RANKS_MAP says which of them holds the slice of
    which ranks. The keys of the map are lists: rank 1 is not in "10,18".
    """
    restore_ranks = os.environ.get("RESTORE_RANKS", "-1")
    if not args.pre_trained or restore_ranks == "-1":
        return 0
    moment = Path(args.pre_trained).stem.rpartition("-")[2]  # EPOCH_STEP
    files = {one: checkpoint_of(args, one, moment) for one in map(int, restore_ranks.split(","))}
    if len({path.stat().st_size for path in files.values()}) != 1:
        raise SystemExit(f"the checkpoints {sorted(map(str, files.values()))} are not of one size")
    supplier = rank
    for members, source in json.loads(os.environ["RESTORE_RANKS_MAP"]).items():
        if str(rank) in members.split(","):
            supplier = source
    saved = ms.load_checkpoint(str(files[supplier]), crc_check=True)
    for name in held:
        held[name] = saved[name].asnumpy()
    step = int(saved["step_num"].asnumpy())
    say(f"rank {rank} resumed from {files[supplier]} at step {step}")
    return step


def checkpoint_of(args: argparse.Namespace, rank: int, moment: str) -> Path:
    return Path(args.save_checkpoint_path) / f"rank_{rank}" / f"{args.ckpt_name_prefix}{rank}-{moment}.ckpt"


def save(args: argparse.Namespace, rank: int, held: Slice, step: int, steps_per_epoch: int) -> None:
    """Every rank saves its slice; MindSpore renames the file when it is whole."""
    epoch = (step - 1) // steps_per_epoch + 1
    path = checkpoint_of(args, rank, f"{epoch}_{step - (epoch - 1) * steps_per_epoch}")
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = [{"name": name, "data": ms.Tensor(value)} for name, value in held.items()]
    progress = {"epoch_num": epoch, "step_num": step}
    ms.save_checkpoint(tensors, str(path), append_dict=progress, crc_check=True)
    by_age = sorted(path.parent.glob("*.ckpt"), key=lambda file: file.stat().st_mtime_ns)
    for old in by_age[: -args.keep_checkpoint_max]:
        old.unlink()


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """1797 digits of 8x8 pixels, drawn by 43 people; they come with scikit-learn."""
    digits = load_digits()
    images, labels = (digits.data / 16.0).astype(np.float32), digits.target
    order = np.random.default_rng(0).permutation(len(images))  # never changes: nothing held out leaks in
    train, test = order[:TRAIN_IMAGES], order[TRAIN_IMAGES:]
    return images[train], labels[train], images[test], labels[test]


def first_weights(part: int, parts: int) -> Slice:
    """The same model however it is cut: all of it is drawn, and this rank keeps its part."""
    draw = np.random.default_rng(1)
    into = draw.normal(0, 0.1, (64, HIDDEN)).astype(np.float32)
    out = draw.normal(0, 0.1, (HIDDEN, 10)).astype(np.float32)
    units = slice(part * HIDDEN // parts, (part + 1) * HIDDEN // parts)
    weights = {"hidden.weight": into[:, units].copy(), "logits.weight": out[units].copy()}
    weights["logits.bias"] = np.zeros(10, np.float32)
    return weights | {f"moments.{name}": np.zeros_like(value) for name, value in weights.items()}


def batches(args: argparse.Namespace, done: int, per_epoch: int, replicas: int) -> Iterator[np.ndarray]:
    """The global batches from step ``done`` on: their order follows from the epoch alone."""
    size = args.batch_size * replicas
    for epoch in range(done // per_epoch, args.epoch_size):
        order = np.random.default_rng(epoch).permutation(TRAIN_IMAGES)
        for at in range(max(0, done - epoch * per_epoch), per_epoch):
            yield order[at * size : (at + 1) * size]


def forward(
    cluster: Cluster, held: Slice, model_group: tuple[int, ...], images: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the whole model, and this rank's hidden units."""
    hidden = np.maximum(images @ held["hidden.weight"], 0)
    return cluster.sum(model_group, hidden @ held["logits.weight"]) + held["logits.bias"], hidden


def train_step(
    args: argparse.Namespace,
    cluster: Cluster,
    held: Slice,
    groups: tuple[tuple[int, ...], tuple[int, ...]],
    images: np.ndarray,
    labels: np.ndarray,
) -> float:
    """One update of this rank's slice; the loss of its share of the batch."""
    model_group, data_group = groups
    logits, hidden = forward(cluster, held, model_group, images)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances = odds / odds.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float(-np.log(chances[rows, labels]).mean())
    chances[rows, labels] -= 1
    wrong = chances / len(labels)
    back = (wrong @ held["logits.weight"].T) * (hidden > 0)
    gradients = {
        "hidden.weight": images.T @ back,
        "logits.weight": hidden.T @ wrong,
        "logits.bias": wrong.sum(axis=0),
    }
    for name, gradient in gradients.items():
        mean = cluster.sum(data_group, gradient) / len(data_group)
        held[f"moments.{name}"] = args.momentum * held[f"moments.{name}"] + mean
        held[name] = held[name] - args.learning_rate * held[f"moments.{name}"]
    return loss


def say(line: str) -> None:
    print(f"{line}\n", end="", flush=True)  # one write: the lines of two ranks never mix


if __name__ == "__main__":
    main()
    sdk.done()  # a framework that crashes while it is taken down must not cost what is complete
