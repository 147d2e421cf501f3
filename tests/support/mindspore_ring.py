"""A real MindSpore worker that does nothing but meet the others and add up the ranks; ends as scripts end.

``sys.argv``: what happens in each incarnation, such as ``late:1`` (rank 1 comes seconds later), ``early:0``
(rank 0 dies before ``init()``), ``meeting:1`` (rank 1 dies while the others wait for it in ``init()``),
``dies:1`` (after the sum) or ``-``.
"""

import os
import signal
import sys
import threading

import mindspore as ms
import numpy as np
from mindspore import ops
from mindspore.communication import get_group_size, get_rank, init

from faultrun import sdk

LATE_S = 3.0


def main() -> None:
    life, rank = int(os.environ["FAULTRUN_INCARNATION"]), int(os.environ["RANK_ID"])
    what, _, who = (sys.argv[1:] + ["-"] * 99)[life].partition(":")
    mine = who == str(rank)
    if mine and what == "late":
        threading.Event().wait(LATE_S)
    if mine and what == "early":
        os.kill(os.getpid(), signal.SIGKILL)
    if mine and what == "meeting":
        threading.Timer(LATE_S, os.kill, (os.getpid(), signal.SIGKILL)).start()
        threading.Event().wait()
    ms.set_device("CPU")
    init()
    total = float(ops.AllReduce()(ms.Tensor(np.array([rank + 1.0], np.float32))).asnumpy()[0])
    sys.stdout.write(f"rank {get_rank()} of {get_group_size()}: sum {total:g}\n")
    sys.stdout.flush()
    if mine and what == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    sdk.done()  # MindSpore's message thread crashes now and then as its process ends


if __name__ == "__main__":
    main()
