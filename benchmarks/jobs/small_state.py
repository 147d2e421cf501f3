"""The state of the small trainings: a weight that follows from its step, so that a wrong resume shows."""

import json
import os
import struct
from contextlib import suppress
from pathlib import Path

_MODULUS = (1 << 61) - 1
_FORMAT = {"weight": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}


class State:
    """All there is to save."""

    def __init__(self, step: int = 0, weight: int = 1) -> None:
        self.step, self.weight = step, weight

    def update(self, total: int) -> None:
        """One step, whose gradients sum up to ``total`` over the ranks."""
        self.weight = (self.weight * 31 + total) % _MODULUS
        self.step += 1

    def truth(self, world: int) -> int:
        """The weight that an undisturbed training of so many ranks has at this step."""
        truth = State()
        while truth.step < self.step:
            truth.update(sum(gradient(truth.step + 1, rank) for rank in range(world)))
        return truth.weight

    def write(self, path: str) -> None:
        """A safetensors file that tells its step, on the disk when this returns."""
        header = json.dumps({"__metadata__": {"step": str(self.step)}, **_FORMAT}).encode()
        with Path(path).open("wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + struct.pack("<q", self.weight))
            file.flush()
            os.fsync(file.fileno())

    def save_in(self, own: Path, keep: int) -> Path:
        """As ``step_<step>.safetensors`` once it is on the disk; all but the newest few are dropped."""
        own.mkdir(parents=True, exist_ok=True)
        path = own / f"step_{self.step}.safetensors"
        partial = own / f".{path.name}.tmp"
        self.write(str(partial))
        partial.replace(path)
        kept = sorted(own.glob("step_*.safetensors"), key=lambda one: (len(one.name), one.name))
        for old in kept[:-keep]:
            with suppress(FileNotFoundError):
                old.unlink()
        return path


def read(path: str) -> State:
    """What ``State.write`` wrote; ValueError or OSError if it is not all there."""
    data = Path(path).read_bytes()
    try:
        (length,) = struct.unpack_from("<Q", data)
        step = int(json.loads(data[8 : 8 + length])["__metadata__"]["step"])
        (weight,) = struct.unpack_from("<q", data, 8 + length)
    except (struct.error, KeyError) as error:
        raise ValueError(path) from error
    return State(step, weight)


def gradient(step: int, rank: int) -> int:
    """What ``rank`` contributes to ``step``."""
    return step * 1000 + rank
