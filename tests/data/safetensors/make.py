"""Write the small safetensors files beside this file anew. Made with MindSpore 2.10.0 and safetensors 0.8.0.

python tests/data/safetensors/make.py
"""

import os
from pathlib import Path

import mindspore
import numpy
from safetensors.numpy import save_file

if __name__ == "__main__":
    os.chdir(Path(__file__).parent)
    parameters = [
        {"name": "w", "data": mindspore.Tensor([1.0, 2.0, 3.0])},
        {"name": "global_step", "data": mindspore.Tensor([1215], mindspore.int32)},
        {"name": "learning_rate", "data": mindspore.Tensor(0.1)},
    ]
    numbers = {"epoch_num": 3, "step_num": 1215}
    for name, check in (("tiny-3_15.safetensors", False), ("tiny_1-3_15.safetensors", True)):
        Path(name).unlink(missing_ok=True)
        mindspore.save_checkpoint(
            parameters, name, append_dict=numbers, crc_check=check, format="safetensors"
        )
    save_file({"w": numpy.arange(3.0)}, "model.safetensors", {"format": "pt", "step": "1200", "epoch": "2"})
