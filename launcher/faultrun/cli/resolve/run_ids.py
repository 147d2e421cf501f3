"""The name of the run: given, taken from the platform's job, or made up to be read aloud."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from faultrun.cli.options.settings import INSIDE_WORKER

_SOFT = (
    "amber",
    "brave",
    "calm",
    "clear",
    "dawn",
    "eager",
    "fair",
    "fleet",
    "gentle",
    "glad",
    "keen",
    "kind",
)
_MORE = (
    "light",
    "lively",
    "lucid",
    "mellow",
    "merry",
    "noble",
    "quiet",
    "rapid",
    "ready",
    "silver",
    "steady",
)
_FIRST = (*_SOFT, *_MORE, "sunny", "swift", "tidal", "vivid", "warm", "wise", "young", "zesty", "bold")
_TREES = (
    "alder",
    "ash",
    "aspen",
    "birch",
    "cedar",
    "elm",
    "fir",
    "hazel",
    "juniper",
    "larch",
    "linden",
    "maple",
)
_BIRDS = ("avocet", "crane", "curlew", "falcon", "finch", "heron", "ibis", "jay", "kestrel", "lark", "martin")
_SECOND = (*_TREES, *_BIRDS, "osprey", "owl", "plover", "raven", "robin", "swan", "tern", "wren", "kite")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobId:
    """An id that outlives our process, and the variable that holds it."""

    name: str
    source: str


def platform_run_id(environ: Mapping[str, str]) -> JobId | None:
    """The job's id as its platform says it, the most specific first; None outside of any.

    MindX gives the task's id, and older manifests the job's name in the
    variable ``mindx-dls-test``. In Volcano and indexed Kubernetes jobs the
    pod's name survives rescheduling. Inside one of our own workers nothing
    of this is ours.
    """
    if INSIDE_WORKER in environ:
        return None
    for variable in ("MINDX_TASK_ID", "mindx-dls-test"):
        if environ.get(variable):
            return JobId(name=_as_name(environ[variable]), source=variable)
    if environ.get("SLURM_JOB_ID"):
        return JobId(name=_as_name(f"slurm-{environ['SLURM_JOB_ID']}"), source="SLURM_JOB_ID")
    if in_pod(environ) and environ.get("HOSTNAME"):
        return JobId(name=_as_name(environ["HOSTNAME"]), source="HOSTNAME")
    torch_id = environ.get("TORCHELASTIC_RUN_ID", "none")
    if torch_id not in ("", "none"):
        return JobId(name=_as_name(torch_id), source="TORCHELASTIC_RUN_ID")
    return None


def in_pod(environ: Mapping[str, str]) -> bool:
    """Whether this is a container of Kubernetes, with a network of its own and its task's name."""
    return any(environ.get(name) for name in ("VC_TASK_INDEX", "VK_TASK_INDEX", "KUBERNETES_SERVICE_HOST"))


def readable_run_id(entropy: bytes) -> str:
    """A name such as ``calm-heron-3f7a`` from at least 4 random bytes: 67 million of them."""
    first, second = _FIRST[entropy[0] % len(_FIRST)], _SECOND[entropy[1] % len(_SECOND)]
    return f"{first}-{second}-{entropy[2:4].hex()}"


def as_run_id(text: str) -> str:
    """A foreign id (``--rdzv-id``) as a name that may be a folder."""
    return _as_name(text)


def _as_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip(".-")[:128] or "run"
