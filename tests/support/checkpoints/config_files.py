"""A configuration of the ModelZoo's shape, and the everyday edit of it."""

from pathlib import Path

from faultrun.model.edit import Scalar, Setting

MODELZOO = """# Builtin Configurations(DO NOT CHANGE unless you know what you do)
run_distribute: False
output_path: "/cache/train"
checkpoint_path: "./checkpoint/"

# ==============================================================================
# Training options
net_name: "resnet50"
pre_trained: ""      # a file, not a directory
all_reduce_fusion_config:
    - 85
    - 160
has_trained_epoch: 0
has_trained_step: 0
result_path: ''

---
# Help description for each configuration
pre_trained: "The path of the pretrained checkpoint, default: ''"
has_trained_epoch: "epochs: how many were trained"
"""


def one(file: object, key: str = "pre_trained", value: Scalar = "/x.ckpt") -> list[Setting]:
    """One value for one file, as ``apply`` takes it."""
    return [Setting(file=str(file), key=key, value=value)]


def written(file: Path) -> tuple[int, int, int]:
    """What differs once a file was written, replaced or got another mode; reading changes nothing here."""
    status = file.stat()
    return (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
