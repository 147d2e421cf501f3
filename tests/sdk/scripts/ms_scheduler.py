"""MindSpore's own scheduler: ``init`` returns when the ranks have left."""

import mindspore as ms
from mindspore.communication import init

if __name__ == "__main__":
    ms.set_device("CPU")
    init()
