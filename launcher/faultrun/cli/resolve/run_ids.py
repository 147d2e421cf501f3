"""The name of the run: given, taken from the platform's job, or made up to be read aloud."""

import os
import re
from collections.abc import Mapping

from faultrun.cli.options.settings import INSIDE_WORKER, Settings
from faultrun.cli.resolve.context import ResolveContext
from faultrun.model.topology import RunId

_FIRST = (
    "amber brave calm clear dawn eager fair fleet gentle glad keen kind light lively lucid mellow merry "
    "noble quiet rapid ready silver steady sunny swift tidal vivid warm wise young zesty bold"
)
_SECOND = (
    "alder ash aspen birch cedar elm fir hazel juniper larch linden maple avocet crane curlew falcon finch "
    "heron ibis jay kestrel lark martin osprey owl plover raven robin swan tern wren kite"
)
_JOB_VARIABLES = ("MINDX_TASK_ID", "mindx-dls-test")
"""MindX gives the task's id, and older manifests the job's name in the second."""


def resolve_run_id(ctx: ResolveContext) -> RunId:
    """``--run_id``, else ``--rdzv-id``, else the platform's job, else a new name."""
    given, foreign = ctx.settings.run_id, ctx.settings.rdzv_id
    if given is not None:
        ctx.no_effect("--run_id names the run", Settings.rdzv_id)
        return RunId(given)
    name = "" if foreign == "none" else foreign
    name = name or _job(ctx.environ)
    return RunId(re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip(".-")[:128] or "run") if name else _new()


def in_pod(environ: Mapping[str, str]) -> bool:
    """Whether this is a container of Kubernetes, with a network of its own and its task's name."""
    return any(environ.get(name) for name in ("VC_TASK_INDEX", "VK_TASK_INDEX", "KUBERNETES_SERVICE_HOST"))


def _job(environ: Mapping[str, str]) -> str:
    """The job's id as its platform says it, the most specific first; empty outside of any.

    In Volcano and indexed Kubernetes jobs the pod's name survives rescheduling.
    Inside one of our own workers nothing of this is ours.
    """
    if INSIDE_WORKER in environ:
        return ""
    slurm, torch = environ.get("SLURM_JOB_ID", ""), environ.get("TORCHELASTIC_RUN_ID", "none")
    said = (
        *(environ.get(variable, "") for variable in _JOB_VARIABLES),
        f"slurm-{slurm}" if slurm else "",
        environ.get("HOSTNAME", "") if in_pod(environ) else "",
        "" if torch == "none" else torch,
    )
    return next(filter(None, said), "")


def _new() -> RunId:
    """A name such as ``calm-heron-3f7a``: 67 million of them."""
    adjective, noun, *rest = os.urandom(4)
    first, second = _FIRST.split(), _SECOND.split()
    return RunId(f"{first[adjective % len(first)]}-{second[noun % len(second)]}-{bytes(rest).hex()}")
