"""The values that templates take: what each may be, its default, and words for the person who gives it.

One table for all templates, so that a value means the same in each; which of them a template takes
is seen from the template. A default may refer to other values.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import starmap

_Read = Callable[[str], str | int | bool]
"""Takes a text to the value it means; ValueError with the reason as a phrase that follows "because:"."""

_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
_MOST_DEVICES = 1024


@dataclass(frozen=True, slots=True)
class TemplateValue:
    """One value. ``default`` None: it must be given. ``many``: it may be given again, and is a list."""

    name: str
    read: _Read
    default: str | None
    help: str
    many: bool = False

    @property
    def phrase(self) -> str:
        """What it is, as words that follow "because:"."""
        return self.help[0].lower() + self.help[1:]


def text(pattern: str, what: str, longest: int = 1024) -> _Read:
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


def whole(low: int, high: int, more: str = "") -> _Read:
    """A whole number from ``low`` to ``high``; ``more`` says why it ends there."""

    def read(given: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", given):
            raise ValueError(f"{given!r} is not a whole number")
        if not low <= int(given) <= high:
            raise ValueError(more or f"{given} is not between {low} and {high}")
        return int(given)

    return read


def choice(*words: str) -> _Read:
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

_ROWS = (
    ("name", _DNS, "train", "Name of the job; everything that must be named after it is."),
    ("namespace", _DNS, "default", "Namespace of all objects."),
    ("image", _IMAGE, None, "Image with faultrun, the framework and the code in it."),
    ("script", line, "/job/code/train.py", "Training script, as faultrun takes it."),
    ("args", line, "", "Arguments of the script, one each time.", True),
    ("options", line, "", "More options of faultrun, one each time.", True),
    ("recipe", _WORD, "", "The run's --recipe."),
    (
        "checkpoint_dir",
        _FOLDER,
        "/job/output/checkpoints",
        "Where checkpoints are looked for; on a volume that outlives the pod.",
    ),
    ("log_dir", _FOLDER, "/job/output/${name}/faultrun_log", "The run's log_dir."),
    ("nodes", whole(1, 1, _ONE_NODE), "1", "Pods of the job."),
    ("devices", whole(1, _MOST_DEVICES), "8", "Workers, and devices, of a pod."),
    ("npu_resource", _RESOURCE, "huawei.com/Ascend910", "Resource of the devices."),
    ("gpu_resource", _RESOURCE, "nvidia.com/gpu", "Resource of the devices."),
    ("cpu", _QUANTITY, "", "Processors, as request and limit."),
    ("memory", _QUANTITY, "", "Memory, as request and limit; shared memory is in it."),
    ("shm_size", _QUANTITY, "16Gi", "Most that /dev/shm may hold."),
    (
        "grace_period",
        whole(6, 86_400),
        "600",
        "terminationGracePeriodSeconds: what a stop may take, the save included.",
    ),
    (
        "grace_over_time",
        whole(2, 3600),
        "900",
        "grace-over-time of the cluster's Volcano, which grace_period must stay below.",
    ),
    (
        "fault_scheduling",
        choice("grace", "force", "off"),
        "grace",
        "What Volcano does with the pods of a broken device: grace, force or off.",
    ),
    ("max_retry", whole(0, 100), "3", "How often pods are replaced after a failure."),
    ("queue", _DNS, "default", "Volcano's queue."),
    (
        "framework",
        choice("mindspore", "pytorch", "tensorflow"),
        "mindspore",
        "mindspore, pytorch or tensorflow.",
    ),
    (
        "ring_controller",
        _LABEL,
        "ascend-910",
        "Label ring-controller.atlas, the same on everything: ascend-910, ascend-910b, ...",
    ),
    ("host_arch", _LABEL, "huawei-arm", "Node label host-arch."),
    ("accelerator_type", _LABEL, "", "Node label accelerator-type."),
    ("rank_table", switch, "true", "Mount the platform's rank table."),
    ("hot_reset", switch, "true", "Follow devices that are reset in place."),
    ("host_network", switch, "false", "Use the node's network."),
    (
        "hold_signals",
        switch,
        "false",
        "Start through `env --block-signal` (coreutils 8.31), so that no SIGTERM is too early.",
    ),
    ("storage", choice("claim", "nfs", "host"), "claim", "What the volumes are: claim, nfs or host."),
    ("nfs_server", _WORD, "", "Server of the volumes, for storage=nfs."),
    ("work", _PLACE, "work", "Volume at /job, with code and output: a claim's name, or a path."),
    ("data", _PLACE, "", "Volume at /data, read only: a claim's name, or a path."),
    ("gres", _WORD, "gpu", "Kind of SLURM's generic resource for the devices."),
    ("cpus_per_task", text(r"[0-9]{1,5}", "a whole number"), "", "Processors."),
    ("mem", text(r"[0-9]+[KMGT]?", "a size such as 64G"), "", "Memory, in SLURM's units."),
    ("partition", _WORD, "", "SLURM's partition."),
    ("account", _WORD, "", "SLURM's account."),
    (
        "time_limit",
        text(r"([0-9]{1,3}-)?[0-9]{1,3}:[0-9]{2}(:[0-9]{2})?", "a time such as 1-12:00:00"),
        "24:00:00",
        "SLURM's limit: [DAYS-]HOURS:MINUTES:SECONDS.",
    ),
    (
        "warning",
        whole(10, 65_535),
        "120",
        "Seconds before that limit at which SIGTERM comes; the save must fit.",
    ),
    (
        "output",
        text(r"[A-Za-z0-9._/%@+=-]+", "a path"),
        "slurm-%j.out",
        "Batch script's own output; %j is the job's number.",
    ),
    ("base_image", _IMAGE, None, "Image with Python and the framework."),
    (
        "package",
        text(r"[A-Za-z0-9._/:@%+=\[\]-]+", "what pip installs"),
        "faultrun",
        "What pip installs: a name, a version, a wheel's address.",
    ),
    (
        "code",
        text(r"[A-Za-z0-9._/@%+=-]+", "a path"),
        "",
        "Folder of the build context to copy to /job/code.",
    ),
    ("user", text(r"[0-9]{1,9}", "a user id"), "1000", "User id to run as; empty for root."),
)

TABLE = tuple(starmap(TemplateValue, _ROWS))
