"""The parts of a manifest that rules look at: jobs, their pods, containers and config maps."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from faultrun.manifests.command import faultrun_of, shell_of
from faultrun.text.yaml_tree import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    entries,
    items,
    mapping,
    scalar,
    text_at,
)

ASCEND_LABEL, FAULT_LABEL, _ASCEND_RESOURCE = "ring-controller.atlas", "fault-scheduling", "huawei.com/"
_BUILT_IN = frozenset({"v1", "apps/v1", "batch/v1"})
_WRAPPERS = frozenset({"spec", "template", "jobTemplate"})
_NATIVE_RESOURCES = ("kubernetes.io/", "hugepages-", "attachable-volumes-", "requests.", "limits.")
_KUBERNETES_GRACE_S = 30
_NAMES_FAULTRUN = re.compile(r"\bfaultrun\b(?!\s+prestop)")


class WorkloadKind(Enum):
    """Kinds that have rules of their own; every other kind with a pod template is OTHER."""

    VCJOB = "Volcano Job"
    ASCENDJOB = "AscendJob"
    JOBSET = "JobSet"
    JOB = "Job"
    DEPLOYMENT = "Deployment"
    OTHER = "workload"


_KINDS = {
    ("batch.volcano.sh", "Job"): WorkloadKind.VCJOB,
    ("mindxdl.gitee.com", "AscendJob"): WorkloadKind.ASCENDJOB,
    ("jobset.x-k8s.io", "JobSet"): WorkloadKind.JOBSET,
    ("batch", "Job"): WorkloadKind.JOB,
    ("apps", "Deployment"): WorkloadKind.DEPLOYMENT,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class _Named:
    root: MappingNode

    @property
    def name(self) -> ScalarNode | None:
        return scalar(self.root, "metadata", "name")

    @property
    def named(self) -> str:
        """``name`` as a text; empty when there is none."""
        return self.name.value if self.name else ""

    def label(self, name: str) -> ScalarNode | None:
        return scalar(self.root, "metadata", "labels", name)


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload(_Named):
    """One object that makes pods."""

    kind: WorkloadKind

    @cached_property
    def pods(self) -> tuple["Pod", ...]:
        """Every pod template, wherever the kind keeps it."""
        if is_object(self.root, "v1", "Pod"):
            return tuple(self._pod(self.root, role="", owner=None))
        return tuple(self._below(self.root, "", set()))

    @property
    def containers(self) -> tuple["Container", ...]:
        """The containers of all pods."""
        return tuple(container for pod in self.pods for container in pod.containers)

    @property
    def shown(self) -> str:
        """Kind and name, for messages."""
        return f"{self.kind.value} {self.named}" if self.name else self.kind.value

    @property
    def is_foreign(self) -> bool:
        """Whether it is of a kind that neither Kubernetes has nor any rule knows."""
        return self.kind is WorkloadKind.OTHER and text_at(self.root, "apiVersion") not in _BUILT_IN

    @property
    def fault_scheduling(self) -> ScalarNode | None:
        """The ``fault-scheduling`` label, of the job or else of a pod."""
        return next(filter(None, (one.label(FAULT_LABEL) for one in (self, *self.pods))), None)

    @cached_property
    def on_ascend(self) -> bool:
        """Whether anything in it says Ascend."""
        labelled = any(one.label(ASCEND_LABEL) for one in (self, *self.pods))
        asked = any(name.startswith(_ASCEND_RESOURCE) for one in self.containers for name in one.devices)
        return bool(self.kind is WorkloadKind.ASCENDJOB or labelled or asked or self.fault_scheduling)

    @property
    def by_volcano(self) -> bool:
        """Whether Ascend's Volcano schedules it, whose clock ends a graceful deletion."""
        if self.kind is WorkloadKind.ASCENDJOB:
            return True
        if self.kind is WorkloadKind.VCJOB:
            return self.on_ascend or not any(one.devices for one in self.containers)
        return self.on_ascend and any(text_at(pod.spec, "schedulerName") == "volcano" for pod in self.pods)

    @property
    def saves_when_stopped(self) -> bool:
        """Whether it means to save when it is told to stop: a hook, faultrun, or graceful rescheduling."""
        graceful = self.fault_scheduling is not None and self.fault_scheduling.value == "grace"
        return graceful or any(one.means_to_save for one in self.containers)

    def _below(self, node: Node, role: str, seen: set[int]) -> Iterator["Pod"]:
        """Templates under ``node``; ``role`` is the last name passed that says what the pods are for."""
        if id(node) in seen:
            return
        seen.add(id(node))
        if isinstance(node, MappingNode):
            own = text_at(node, "name") or role
            if (template := mapping(node, "template")) is not None:
                yield from self._pod(template, role=own, owner=node)
            for key, value in node.entries:
                yield from self._below(value, own if key.value in _WRAPPERS else key.value, seen)
        for item in items(node):
            yield from self._below(item, role, seen)

    def _pod(self, template: MappingNode, *, role: str, owner: MappingNode | None) -> Iterator["Pod"]:
        spec = mapping(template, "spec")
        if spec is not None and isinstance(spec.get("containers"), SequenceNode):
            restarts = scalar(spec, "restartPolicy") or scalar(owner, "restartPolicy")
            yield Pod(root=template, job=self, spec=spec, role=role, owner=owner, restart_policy=restarts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pod(_Named):
    """One pod template: ``root`` holds metadata and ``spec``; ``role`` names it among several.

    ``owner`` is what the template stands in.
    """

    job: Workload
    spec: MappingNode
    role: str
    owner: MappingNode | None = None
    restart_policy: ScalarNode | None = None

    @property
    def replicas(self) -> ScalarNode | None:
        """``replicas`` beside it."""
        return scalar(self.owner, "replicas")

    @property
    def counts(self) -> tuple[ScalarNode, ...]:
        """The numbers that say how many of it run at once: their product."""
        jobs = items(self.job.root, "spec", "replicatedJobs")
        outer = next((one for one in jobs if text_at(one, "name") == self.role), None)
        written = (self.replicas, scalar(self.owner, "parallelism"), scalar(outer, "replicas"))
        return tuple(one for one in written if one is not None)

    @cached_property
    def containers(self) -> tuple["Container", ...]:
        """The containers, without init containers."""
        nodes = (node for node in items(self.spec, "containers") if isinstance(node, MappingNode))
        return tuple(
            Container(node=node, name=text_at(node, "name") or f"container {position}", pod=self)
            for position, node in enumerate(nodes)
        )

    @property
    def trainers(self) -> tuple["Container", ...]:
        """The containers that train: those with devices, else the first."""
        return tuple(one for one in self.containers if one.devices) or self.containers[:1]

    @property
    def volumes(self) -> tuple[Node, ...]:
        """The volumes."""
        return items(self.spec, "volumes")

    @property
    def grace(self) -> ScalarNode | None:
        """``terminationGracePeriodSeconds``."""
        return scalar(self.spec, "terminationGracePeriodSeconds")

    @property
    def grace_s(self) -> int | None:
        """The grace period in seconds, Kubernetes' default if it is not written; None if it is no number."""
        return _KUBERNETES_GRACE_S if self.grace is None else self.grace.number


@dataclass(frozen=True, kw_only=True, eq=False)
class Container:
    """One container of a pod; ``name`` is for messages."""

    node: MappingNode
    name: str
    pod: Pod

    @property
    def word_nodes(self) -> tuple[ScalarNode, ...]:
        """``command`` and ``args`` together; empty when the image's own entry point decides."""
        command = items(self.node, "command")
        nodes = (*command, *items(self.node, "args")) if command else ()
        return tuple(node for node in nodes if isinstance(node, ScalarNode))

    @property
    def words(self) -> tuple[str, ...]:
        """What they say."""
        return tuple(node.value for node in self.word_nodes)

    @cached_property
    def faultrun(self) -> tuple[str, ...] | None:
        """The words of faultrun if this container starts it by name; None if not, or if the image decides."""
        return faultrun_of(self.words)

    @property
    def hides_faultrun(self) -> bool:
        """Whether a shell starts faultrun in a way that is not read: behind a pipe, with a variable."""
        shell = None if self.faultrun is not None else shell_of(self.words)
        return shell is not None and _NAMES_FAULTRUN.search(shell.script) is not None

    @property
    def pre_stop(self) -> MappingNode | None:
        """The preStop hook."""
        return mapping(self.node, "lifecycle", "preStop")

    @property
    def hook_words(self) -> tuple[ScalarNode, ...]:
        """The command of the preStop hook."""
        return tuple(node for node in items(self.pre_stop, "exec", "command") if isinstance(node, ScalarNode))

    @property
    def means_to_save(self) -> bool:
        """Whether it has a hook or runs faultrun."""
        return self.pre_stop is not None or self.faultrun is not None

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """Extended resources in requests or limits."""
        parts = (entries(self.node, "resources", part) for part in ("requests", "limits"))
        found = (key.value for part in parts for key, value in part if isinstance(value, ScalarNode))
        return tuple(dict.fromkeys(name for name in found if is_extended(name)))

    @property
    def variables(self) -> tuple[Node, ...]:
        """The entries of ``env``."""
        return items(self.node, "env")

    def variable(self, name: str) -> ScalarNode | None:
        """The literal value of one; None when it is not set, or by reference."""
        entry = next((one for one in self.variables if text_at(one, "name") == name), None)
        return scalar(entry, "value")

    @property
    def mounts(self) -> tuple[Node, ...]:
        """The entries of ``volumeMounts``."""
        return items(self.node, "volumeMounts")


class PlatformMap(NamedTuple):
    """A config map through which one of Ascend's components talks to a job: ``prefix`` and the job's name.

    Prefix and key cannot be chosen: the components write exactly there. In the
    folder the platform's own scripts, and faultrun, look for the file.
    """

    prefix: str
    key: str
    folder: str
    holds: str


_PLATFORM_MAPS = (
    PlatformMap("rings-config-", "hccl.json", "/user/serverid/devindex/config", "the rank table"),
    PlatformMap("fault-config-", "fault-npus", "/user/restore/fault/config", "the ranks that failed"),
    PlatformMap(
        "reset-config-", "reset.json", "/user/restore/reset/config", "the state of devices that are reset"
    ),
)


def platform_map(name: str) -> PlatformMap | None:
    """The platform's config map that ``name`` is one of, by its prefix."""
    return next((one for one in _PLATFORM_MAPS if name.startswith(one.prefix)), None)


class ConfigMap(_Named):
    """One config map."""

    def is_of(self, job: Workload) -> bool:
        """Whether the platform looks for it under the name of ``job``."""
        platform = platform_map(self.named)
        return platform is not None and self.named == platform.prefix + job.named


def is_extended(resource: str) -> bool:
    """Whether a resource is a device of some plug-in, which can be neither shared nor overcommitted."""
    return "/" in resource and not any(part in resource for part in _NATIVE_RESOURCES)


def is_object(root: Node, version: str, kind: str) -> bool:
    """Whether ``root`` is an object of exactly this kind."""
    return text_at(root, "apiVersion") == version and text_at(root, "kind") == kind


def workload_of(root: MappingNode) -> Workload:
    """Look at an object as at a workload; it has no pods if it is none."""
    group = text_at(root, "apiVersion").rpartition("/")[0]
    return Workload(root=root, kind=_KINDS.get((group, text_at(root, "kind")), WorkloadKind.OTHER))
