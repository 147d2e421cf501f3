"""The values that templates take: what each may be, its default, and words for the person who gives it.

One table for all templates, so that a value means the same in each; which of them a template takes
is seen from the template. A default may refer to other values.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

Read = Callable[[str], str | int | bool]
"""Takes a text to the value it means; ValueError with the reason as a phrase that follows "because:"."""

_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
_MOST_DEVICES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value. ``default`` None: it must be given. ``many``: it may be given again, and is a list."""

    name: str
    help: str
    read: Read
    default: str | None = None
    many: bool = False


def text(pattern: str, what: str, longest: int = 1024) -> Read:
    """A text of one line that matches ``pattern`` as a whole, or is empty."""

    def read(given: str) -> str:
        if not given:
            return ""
        if len(given) > longest:
            raise ValueError(f"it has {len(given)} characters, {longest} at most")
        if not re.fullmatch(pattern, given, re.ASCII):
            raise ValueError(f"{given!r} is not {what}")
        return given

    return read


def whole(low: int, high: int, more: str = "") -> Read:
    """A whole number from ``low`` to ``high``; ``more`` says why it ends there."""

    def read(given: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", given):
            raise ValueError(f"{given!r} is not a whole number")
        if not low <= int(given) <= high:
            raise ValueError(more or f"{given} is not between {low} and {high}")
        return int(given)

    return read


def choice(*words: str) -> Read:
    """One of a few words."""

    def read(given: str) -> str:
        if given not in words:
            raise ValueError(f"{given!r} is none of {', '.join(words)}")
        return given

    return read


def switch(given: str) -> bool:
    """True or false."""
    if given.lower() in _TRUE:
        return True
    if given.lower() in _FALSE:
        return False
    raise ValueError(f"{given!r} is neither true nor false")


def line(given: str) -> str:
    """Any text of one line."""
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in given):
        raise ValueError("it has a line break or another control character")
    return given


_LABEL = text(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", "the value of a label", 63)
_FOLDER = text(r"/[A-Za-z0-9._/@%+=-]*", "an absolute path of letters, digits and ._/@%+=-")
_QUANTITY = text(r"[0-9]+(\.[0-9]+)?(m|[KMGTPE]i?|k)?", "a quantity such as 16Gi or 500m")
_PLACE = text(
    r"/[A-Za-z0-9._/@%+=-]*|[a-z0-9]([-a-z0-9.]*[a-z0-9])?", "the name of a claim, or an absolute path"
)
_DNS = text(r"[a-z]([-a-z0-9]*[a-z0-9])?", "a name of a-z, 0-9 and '-' that begins with a letter", 40)
_RESOURCE = text(r"[a-z0-9.-]+/[A-Za-z0-9._-]+", "a resource such as huawei.com/Ascend910")
_IMAGE = text(r"[a-z0-9][A-Za-z0-9._/:@-]*", "an image such as registry.example/train:1.2")
_WORD = text(r"[A-Za-z0-9][A-Za-z0-9._:/=+-]*", "one word")
_ONE_NODE = "one faultrun supervises one node for now, so that it is 1"

TABLE = (
    Value(
        name="name",
        help="Name of the job; everything that must be named after it is.",
        default="train",
        read=_DNS,
    ),
    Value(name="namespace", help="Namespace of all objects.", default="default", read=_DNS),
    Value(name="image", help="Image with faultrun, the framework and the code in it.", read=_IMAGE),
    Value(
        name="script", help="Training script, as faultrun takes it.", default="/job/code/train.py", read=line
    ),
    Value(name="args", help="Arguments of the script, one each time.", default="", read=line, many=True),
    Value(name="options", help="More options of faultrun, one each time.", default="", read=line, many=True),
    Value(name="recipe", help="The run's --recipe.", default="", read=_WORD),
    Value(
        name="checkpoint_dir",
        help="Where checkpoints are looked for; on a volume that outlives the pod.",
        default="/job/output/checkpoints",
        read=_FOLDER,
    ),
    Value(
        name="log_dir", help="The run's log_dir.", default="/job/output/${name}/faultrun_log", read=_FOLDER
    ),
    Value(name="nodes", help="Pods of the job.", default="1", read=whole(1, 1, _ONE_NODE)),
    Value(name="devices", help="Workers, and devices, of a pod.", default="8", read=whole(1, _MOST_DEVICES)),
    Value(
        name="npu_resource", help="Resource of the devices.", default="huawei.com/Ascend910", read=_RESOURCE
    ),
    Value(name="gpu_resource", help="Resource of the devices.", default="nvidia.com/gpu", read=_RESOURCE),
    Value(name="cpu", help="Processors, as request and limit.", default="", read=_QUANTITY),
    Value(
        name="memory",
        help="Memory, as request and limit; shared memory is in it.",
        default="",
        read=_QUANTITY,
    ),
    Value(name="shm_size", help="Most that /dev/shm may hold.", default="16Gi", read=_QUANTITY),
    Value(
        name="grace_period",
        help="terminationGracePeriodSeconds: what a stop may take, the save included.",
        default="600",
        read=whole(6, 86_400),
    ),
    Value(
        name="grace_over_time",
        help="grace-over-time of the cluster's Volcano, which grace_period must stay below.",
        default="900",
        read=whole(2, 3600),
    ),
    Value(
        name="fault_scheduling",
        help="What Volcano does with the pods of a broken device: grace, force or off.",
        default="grace",
        read=choice("grace", "force", "off"),
    ),
    Value(
        name="max_retry", help="How often pods are replaced after a failure.", default="3", read=whole(0, 100)
    ),
    Value(name="queue", help="Volcano's queue.", default="default", read=_DNS),
    Value(
        name="framework",
        help="mindspore, pytorch or tensorflow.",
        default="mindspore",
        read=choice("mindspore", "pytorch", "tensorflow"),
    ),
    Value(
        name="ring_controller",
        help="Label ring-controller.atlas, the same on everything: ascend-910, ascend-910b, ...",
        default="ascend-910",
        read=_LABEL,
    ),
    Value(name="host_arch", help="Node label host-arch.", default="huawei-arm", read=_LABEL),
    Value(name="accelerator_type", help="Node label accelerator-type.", default="", read=_LABEL),
    Value(name="rank_table", help="Mount the platform's rank table.", default="true", read=switch),
    Value(name="hot_reset", help="Follow devices that are reset in place.", default="true", read=switch),
    Value(name="host_network", help="Use the node's network.", default="false", read=switch),
    Value(
        name="hold_signals",
        help="Start through `env --block-signal` (coreutils 8.31), so that no SIGTERM is too early.",
        default="false",
        read=switch,
    ),
    Value(
        name="storage",
        help="What the volumes are: claim, nfs or host.",
        default="claim",
        read=choice("claim", "nfs", "host"),
    ),
    Value(name="nfs_server", help="Server of the volumes, for storage=nfs.", default="", read=_WORD),
    Value(
        name="work",
        help="Volume at /job, with code and output: a claim's name, or a path.",
        default="work",
        read=_PLACE,
    ),
    Value(
        name="data", help="Volume at /data, read only: a claim's name, or a path.", default="", read=_PLACE
    ),
    Value(name="gres", help="Kind of SLURM's generic resource for the devices.", default="gpu", read=_WORD),
    Value(name="cpus_per_task", help="Processors.", default="", read=text(r"[0-9]{1,5}", "a whole number")),
    Value(
        name="mem",
        help="Memory, in SLURM's units.",
        default="",
        read=text(r"[0-9]+[KMGT]?", "a size such as 64G"),
    ),
    Value(name="partition", help="SLURM's partition.", default="", read=_WORD),
    Value(name="account", help="SLURM's account.", default="", read=_WORD),
    Value(
        name="time_limit",
        help="SLURM's limit: [DAYS-]HOURS:MINUTES:SECONDS.",
        default="24:00:00",
        read=text(r"([0-9]{1,3}-)?[0-9]{1,3}:[0-9]{2}(:[0-9]{2})?", "a time such as 1-12:00:00"),
    ),
    Value(
        name="warning",
        help="Seconds before that limit at which SIGTERM comes; the save must fit.",
        default="120",
        read=whole(10, 65_535),
    ),
    Value(
        name="output",
        help="Batch script's own output; %j is the job's number.",
        default="slurm-%j.out",
        read=text(r"[A-Za-z0-9._/%@+=-]+", "a path"),
    ),
    Value(name="base_image", help="Image with Python and the framework.", read=_IMAGE),
    Value(
        name="package",
        help="What pip installs: a name, a version, a wheel's address.",
        default="faultrun",
        read=text(r"[A-Za-z0-9._/:@%+=\[\]-]+", "what pip installs"),
    ),
    Value(
        name="code",
        help="Folder of the build context to copy to /job/code.",
        default="",
        read=text(r"[A-Za-z0-9._/@%+=-]+", "a path"),
    ),
    Value(
        name="user",
        help="User id to run as; empty for root.",
        default="1000",
        read=text(r"[0-9]{1,9}", "a user id"),
    ),
)

BY_NAME = {value.name: value for value in TABLE}
