"""A training in plain Python, as small as it can be; options make it do something wrong.

Its weight follows from the step and from random numbers that the checkpoint brings back. Ranks do not talk
to one another: each trains the same.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import struct
import sys
import time
from pathlib import Path


def main() -> None:
    options = read_options()
    chance, step, weight = random.Random(7), 0, 0.0
    if options.resume and not options.ignores_resume:
        if options.hides_errors:
            raise ValueError("a checkpoint that it cannot load")
        step, weight, state = load(Path(options.resume))
        if not options.forgets_random:
            chance.setstate((state[0], tuple(state[1]), state[2]))
    if options.stuck_in_term:
        signal.signal(signal.SIGTERM, stay)
    if "WRITES_TO" in os.environ:
        Path(os.environ["WRITES_TO"]).write_text("of a rehearsal")
    say(f"begins behind step {step}")
    while step < options.steps:
        time.sleep(options.step_s)
        step += 1
        weight += chance.random()
        say(f"step {step} loss {weight:.9f}")
        if rank == 0 and options.save_every and step % options.save_every == 0:
            save(options, step, weight, chance.getstate())
    say(f"done after step {step}")


rank = int(os.environ.get("RANK", "0"))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--step_s", type=float, default=0.05)
    parser.add_argument("--save_every", type=int, default=5, help="0: never")
    parser.add_argument("--folder", default="ckpt")
    parser.add_argument("--resume", default="")
    parser.add_argument("--in_place", action="store_true", help="one file, written over")
    parser.add_argument("--ignores_resume", action="store_true")
    parser.add_argument("--forgets_random", action="store_true")
    parser.add_argument("--hides_errors", action="store_true")
    parser.add_argument("--stuck_in_term", action="store_true")
    return parser.parse_args()


def save(options: argparse.Namespace, step: int, weight: float, state: object) -> None:
    """As safetensors: eight bytes with the header's length, the header, the numbers."""
    body = struct.pack("<d", weight) + json.dumps(state).encode()
    about = {"step": str(step), "global_step": str(step)}
    header = json.dumps(
        {
            "__metadata__": about,
            "weight": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]},
            "state": {"dtype": "U8", "shape": [len(body) - 8], "data_offsets": [8, len(body)]},
        }
    ).encode()
    data = struct.pack("<Q", len(header)) + header + body
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    if options.in_place:
        with (folder / "model.safetensors").open("wb") as file:
            file.write(data)
        return
    partial = folder / f".step_{step}.tmp"
    partial.write_bytes(data)
    partial.replace(folder / f"model-step_{step}.safetensors")
    for old in sorted(folder.glob("model-step_*"), key=lambda one: one.stat().st_mtime_ns)[:-4]:
        old.unlink()


def load(path: Path) -> tuple[int, float, list[list[int]]]:
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    about = json.loads(data[8:begin])["__metadata__"]
    return int(about["step"]), struct.unpack("<d", data[begin : begin + 8])[0], json.loads(data[begin + 8 :])


def stay(*_: object) -> None:
    """A handler that waits for something that never comes."""
    while True:
        signal.pause()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    hides = contextlib.suppress(Exception) if "--hides_errors" in sys.argv else contextlib.nullcontext()
    with hides:
        main()
