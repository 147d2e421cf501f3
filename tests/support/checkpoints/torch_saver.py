"""Saves without end, to be killed in the middle: ``python torch_saver.py FOLDER``.

For each line on stdin a child is forked that writes ``zip.pt``, ``legacy.pt``
and the directory ``dcp`` over and over, each time one step further; its pid is
printed, and "dead" when it is. Forking spares the seconds of importing torch.
"""

import os
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp


def save_forever(folder: Path, first_step: int) -> None:
    """Write three checkpoints of each step, without temporary names."""
    warnings.simplefilter("ignore")
    step = first_step
    while True:
        state = {"global_step": step, "w": torch.full((100_000,), step), "v": torch.full((30_000,), step)}
        torch.save(state, folder / "zip.pt")
        torch.save(state, folder / "legacy.pt", _use_new_zipfile_serialization=False)
        dcp.save(state, checkpoint_id=str(folder / "dcp"), no_dist=True)
        step += 1


def main(folder: Path) -> None:
    """Serve one child after another until stdin ends."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            save_forever(folder, int(line))
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        os.waitpid(child, 0)
        sys.stdout.write("dead\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
