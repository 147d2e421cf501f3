"""A real MindSpore worker that does nothing but meet the others and add up the ranks; ends as scripts end.

``sys.argv``: what happens, one after the other: ``late:1`` (rank 1 comes seconds later), ``meeting:1`` (it
dies while the others wait for it in ``init()``), ``dies:1`` (after the sum). What happened has left a file
``happened_N``: an incarnation that MindSpore ended by itself is gone through once more.
"""

import os
import signal
import sys
import threading
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import ops
from mindspore.communication import get_group_size, get_rank, init

from faultrun import sdk

LATE_S = 3.0


def main() -> None:
    rank = int(os.environ["RANK_ID"])
    before = len(list(Path().glob("happened_*")))
    what, _, who = [*sys.argv[1:], "-", "-"][before].partition(":")
    what = what if who == str(rank) else ""
    happens = Path(f"happened_{before}")
    if what == "late":
        happens.touch()
        threading.Event().wait(LATE_S)
    if what == "meeting":
        happens.touch()
        threading.Timer(LATE_S, os.kill, (os.getpid(), signal.SIGKILL)).start()
        threading.Event().wait()
    ms.set_device("CPU")
    init()
    total = float(ops.AllReduce()(ms.Tensor(np.array([rank + 1.0], np.float32))).asnumpy()[0])
    sys.stdout.write(f"rank {get_rank()} of {get_group_size()}: sum {total:g}\n")
    sys.stdout.flush()
    if what == "dies":
        happens.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    sdk.done()  # MindSpore's message thread crashes now and then as its process ends


if __name__ == "__main__":
    main()
