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


@dataclass(frozen=True, slots=True)
class Value:
    """One value. ``default`` None: it must be given. ``many``: it may be given again, and is a list."""

    name: str
    read: Read
    default: str | None
    help: str
    many: bool = False

    @property
    def phrase(self) -> str:
        """What it is, as words that follow "because:"."""
        return self.help[0].lower() + self.help[1:]


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
    Value("name", _DNS, "train", "Name of the job; everything that must be named after it is."),
    Value("namespace", _DNS, "default", "Namespace of all objects."),
    Value("image", _IMAGE, None, "Image with faultrun, the framework and the code in it."),
    Value("script", line, "/job/code/train.py", "Training script, as faultrun takes it."),
    Value("args", line, "", "Arguments of the script, one each time.", many=True),
    Value("options", line, "", "More options of faultrun, one each time.", many=True),
    Value("recipe", _WORD, "", "The run's --recipe."),
    Value(
        "checkpoint_dir",
        _FOLDER,
        "/job/output/checkpoints",
        "Where checkpoints are looked for; on a volume that outlives the pod.",
    ),
    Value("log_dir", _FOLDER, "/job/output/${name}/faultrun_log", "The run's log_dir."),
    Value("nodes", whole(1, 1, _ONE_NODE), "1", "Pods of the job."),
    Value("devices", whole(1, _MOST_DEVICES), "8", "Workers, and devices, of a pod."),
    Value("npu_resource", _RESOURCE, "huawei.com/Ascend910", "Resource of the devices."),
    Value("gpu_resource", _RESOURCE, "nvidia.com/gpu", "Resource of the devices."),
    Value("cpu", _QUANTITY, "", "Processors, as request and limit."),
    Value("memory", _QUANTITY, "", "Memory, as request and limit; shared memory is in it."),
    Value("shm_size", _QUANTITY, "16Gi", "Most that /dev/shm may hold."),
    Value(
        "grace_period",
        whole(6, 86_400),
        "600",
        "terminationGracePeriodSeconds: what a stop may take, the save included.",
    ),
    Value(
        "grace_over_time",
        whole(2, 3600),
        "900",
        "grace-over-time of the cluster's Volcano, which grace_period must stay below.",
    ),
    Value(
        "fault_scheduling",
        choice("grace", "force", "off"),
        "grace",
        "What Volcano does with the pods of a broken device: grace, force or off.",
    ),
    Value("max_retry", whole(0, 100), "3", "How often pods are replaced after a failure."),
    Value("queue", _DNS, "default", "Volcano's queue."),
    Value(
        "framework",
        choice("mindspore", "pytorch", "tensorflow"),
        "mindspore",
        "mindspore, pytorch or tensorflow.",
    ),
    Value(
        "ring_controller",
        _LABEL,
        "ascend-910",
        "Label ring-controller.atlas, the same on everything: ascend-910, ascend-910b, ...",
    ),
    Value("host_arch", _LABEL, "huawei-arm", "Node label host-arch."),
    Value("accelerator_type", _LABEL, "", "Node label accelerator-type."),
    Value("rank_table", switch, "true", "Mount the platform's rank table."),
    Value("hot_reset", switch, "true", "Follow devices that are reset in place."),
    Value("host_network", switch, "false", "Use the node's network."),
    Value(
        "hold_signals",
        switch,
        "false",
        "Start through `env --block-signal` (coreutils 8.31), so that no SIGTERM is too early.",
    ),
    Value("storage", choice("claim", "nfs", "host"), "claim", "What the volumes are: claim, nfs or host."),
    Value("nfs_server", _WORD, "", "Server of the volumes, for storage=nfs."),
    Value("work", _PLACE, "work", "Volume at /job, with code and output: a claim's name, or a path."),
    Value("data", _PLACE, "", "Volume at /data, read only: a claim's name, or a path."),
    Value("gres", _WORD, "gpu", "Kind of SLURM's generic resource for the devices."),
    Value("cpus_per_task", text(r"[0-9]{1,5}", "a whole number"), "", "Processors."),
    Value("mem", text(r"[0-9]+[KMGT]?", "a size such as 64G"), "", "Memory, in SLURM's units."),
    Value("partition", _WORD, "", "SLURM's partition."),
    Value("account", _WORD, "", "SLURM's account."),
    Value(
        "time_limit",
        text(r"([0-9]{1,3}-)?[0-9]{1,3}:[0-9]{2}(:[0-9]{2})?", "a time such as 1-12:00:00"),
        "24:00:00",
        "SLURM's limit: [DAYS-]HOURS:MINUTES:SECONDS.",
    ),
    Value(
        "warning",
        whole(10, 65_535),
        "120",
        "Seconds before that limit at which SIGTERM comes; the save must fit.",
    ),
    Value(
        "output",
        text(r"[A-Za-z0-9._/%@+=-]+", "a path"),
        "slurm-%j.out",
        "Batch script's own output; %j is the job's number.",
    ),
    Value("base_image", _IMAGE, None, "Image with Python and the framework."),
    Value(
        "package",
        text(r"[A-Za-z0-9._/:@%+=\[\]-]+", "what pip installs"),
        "faultrun",
        "What pip installs: a name, a version, a wheel's address.",
    ),
    Value(
        "code",
        text(r"[A-Za-z0-9._/@%+=-]+", "a path"),
        "",
        "Folder of the build context to copy to /job/code.",
    ),
    Value("user", text(r"[0-9]{1,9}", "a user id"), "1000", "User id to run as; empty for root."),
)

BY_NAME = {value.name: value for value in TABLE}
