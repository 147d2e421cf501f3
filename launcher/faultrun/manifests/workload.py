"""The parts of a manifest that rules look at: jobs, their pods, containers and config maps."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from faultrun.manifests.command import faultrun_of
from faultrun.text.yaml_reader import YamlStream
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

ASCEND_LABEL = "ring-controller.atlas"
FAULT_LABEL = "fault-scheduling"
_ASCEND_RESOURCE = "huawei.com/"
_WRAPPERS = frozenset({"spec", "template", "jobTemplate"})
_NATIVE_RESOURCES = ("kubernetes.io/", "hugepages-", "attachable-volumes-", "requests.", "limits.")


class Kind(Enum):
    """Kinds that have rules of their own; every other kind with a pod template is OTHER."""

    VCJOB = "Volcano Job"
    ASCENDJOB = "AscendJob"
    JOBSET = "JobSet"
    JOB = "Job"
    DEPLOYMENT = "Deployment"
    OTHER = "workload"


_KINDS = {
    ("batch.volcano.sh", "Job"): Kind.VCJOB,
    ("mindxdl.gitee.com", "AscendJob"): Kind.ASCENDJOB,
    ("jobset.x-k8s.io", "JobSet"): Kind.JOBSET,
    ("batch", "Job"): Kind.JOB,
    ("apps", "Deployment"): Kind.DEPLOYMENT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container of a pod; ``name`` is for messages."""

    node: MappingNode
    name: str

    @property
    def words(self) -> tuple[str, ...]:
        """``command`` and ``args`` together; empty when the image's own entry point decides."""
        command = items(self.node, "command")
        nodes = (*command, *items(self.node, "args")) if command else ()
        return tuple(node.value for node in nodes if isinstance(node, ScalarNode))

    @property
    def word_nodes(self) -> tuple[Node, ...]:
        """The nodes of ``words``."""
        return (*items(self.node, "command"), *items(self.node, "args"))

    @property
    def faultrun(self) -> tuple[str, ...] | None:
        """The words of faultrun if this container starts it by name; None if not, or if the image decides."""
        return faultrun_of(self.words)

    @property
    def pre_stop(self) -> MappingNode | None:
        """The preStop hook."""
        return mapping(self.node, "lifecycle", "preStop")

    @property
    def means_to_save(self) -> bool:
        """Whether it has a hook or runs faultrun."""
        return self.pre_stop is not None or self.faultrun is not None

    @property
    def devices(self) -> dict[str, ScalarNode]:
        """Extended resources in requests or limits, by name."""
        found: dict[str, ScalarNode] = {}
        for part in ("requests", "limits"):
            for key, value in entries(self.node, "resources", part):
                if is_extended(key.value) and isinstance(value, ScalarNode):
                    found.setdefault(key.value, key)
        return found

    def variable(self, name: str) -> ScalarNode | None:
        """The literal value of an environment variable; None when it is not set, or by reference."""
        for entry in items(self.node, "env"):
            if text_at(entry, "name") == name:
                return scalar(entry, "value")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod template: ``template`` holds metadata and ``spec``; ``role`` names it among several."""

    template: MappingNode
    spec: MappingNode
    role: str
    replicas: ScalarNode | None = None
    restart_policy: ScalarNode | None = None

    @property
    def containers(self) -> tuple[Container, ...]:
        """The containers, without init containers."""
        nodes = (node for node in items(self.spec, "containers") if isinstance(node, MappingNode))
        return tuple(
            Container(node=node, name=text_at(node, "name") or f"container {position}")
            for position, node in enumerate(nodes)
        )

    @property
    def trainers(self) -> tuple[Container, ...]:
        """The containers that train: those with devices, else the first."""
        with_devices = tuple(one for one in self.containers if one.devices)
        return with_devices or self.containers[:1]

    @property
    def grace(self) -> ScalarNode | None:
        """``terminationGracePeriodSeconds``."""
        return scalar(self.spec, "terminationGracePeriodSeconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One object that makes pods."""

    kind: Kind
    root: MappingNode
    pods: tuple[Pod, ...]

    @property
    def name(self) -> ScalarNode | None:
        """``metadata.name``."""
        return scalar(self.root, "metadata", "name")

    @property
    def namespace(self) -> str:
        """``metadata.namespace``; empty when kubectl decides."""
        return text_at(self.root, "metadata", "namespace")

    @property
    def labels(self) -> MappingNode | None:
        """``metadata.labels``."""
        return mapping(self.root, "metadata", "labels")

    @property
    def shown(self) -> str:
        """Kind and name, for messages."""
        return f"{self.kind.value} {self.name.value}" if self.name else self.kind.value

    @property
    def containers(self) -> tuple[Container, ...]:
        """The containers of all pods."""
        return tuple(container for pod in self.pods for container in pod.containers)

    @property
    def fault_scheduling(self) -> ScalarNode | None:
        """The ``fault-scheduling`` label, of the job or else of a pod."""
        own = scalar(self.labels, FAULT_LABEL)
        of_pods = (scalar(pod.template, "metadata", "labels", FAULT_LABEL) for pod in self.pods)
        return own or next((label for label in of_pods if label), None)

    @property
    def on_ascend(self) -> bool:
        """Whether anything in it says Ascend."""
        labelled = scalar(self.labels, ASCEND_LABEL) or any(
            scalar(pod.template, "metadata", "labels", ASCEND_LABEL) for pod in self.pods
        )
        asked = any(name.startswith(_ASCEND_RESOURCE) for one in self.containers for name in one.devices)
        return bool(self.kind is Kind.ASCENDJOB or labelled or asked or self.fault_scheduling)

    @property
    def by_volcano(self) -> bool:
        """Whether Ascend's Volcano schedules it, whose clock ends a graceful deletion."""
        if self.kind is Kind.ASCENDJOB:
            return True
        if self.kind is Kind.VCJOB:
            return self.on_ascend or not any(one.devices for one in self.containers)
        return self.on_ascend and any(text_at(pod.spec, "schedulerName") == "volcano" for pod in self.pods)

    @property
    def saves_when_stopped(self) -> bool:
        """Whether it means to save when it is told to stop: a hook, faultrun, or graceful rescheduling."""
        graceful = self.fault_scheduling is not None and self.fault_scheduling.value == "grace"
        return graceful or any(one.means_to_save for one in self.containers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMap:
    """One config map."""

    root: MappingNode

    @property
    def name(self) -> ScalarNode | None:
        """``metadata.name``."""
        return scalar(self.root, "metadata", "name")

    @property
    def namespace(self) -> str:
        """``metadata.namespace``; empty when kubectl decides."""
        return text_at(self.root, "metadata", "namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A file. ``stray`` are documents that are no Kubernetes objects."""

    objects: tuple[MappingNode, ...]
    stray: tuple[Node, ...]
    workloads: tuple[Workload, ...]
    config_maps: tuple[ConfigMap, ...]


def manifest_of(stream: YamlStream) -> Manifest:
    """Sort the documents of a stream; a ``List`` counts as its items."""
    objects: list[MappingNode] = []
    stray: list[Node] = []
    for root in _opened(stream.roots):
        if isinstance(root, MappingNode) and text_at(root, "apiVersion") and text_at(root, "kind"):
            objects.append(root)
        else:
            stray.append(root)
    workloads = ((root, tuple(_pods(root))) for root in objects)
    return Manifest(
        objects=tuple(objects),
        stray=tuple(stray),
        workloads=tuple(Workload(kind=_kind(root), root=root, pods=pods) for root, pods in workloads if pods),
        config_maps=tuple(ConfigMap(root=root) for root in objects if _is(root, "v1", "ConfigMap")),
    )


def is_extended(resource: str) -> bool:
    """Whether a resource is a device of some plug-in, which can be neither shared nor overcommitted."""
    return "/" in resource and not any(part in resource for part in _NATIVE_RESOURCES)


def _opened(roots: tuple[Node, ...]) -> Iterator[Node]:
    for root in roots:
        if isinstance(root, MappingNode) and _is(root, "v1", "List"):
            yield from items(root, "items")
        else:
            yield root


def _is(root: MappingNode, version: str, kind: str) -> bool:
    return text_at(root, "apiVersion") == version and text_at(root, "kind") == kind


def _kind(root: MappingNode) -> Kind:
    group = text_at(root, "apiVersion").rpartition("/")[0]
    return _KINDS.get((group, text_at(root, "kind")), Kind.OTHER)


def _pods(root: MappingNode) -> Iterator[Pod]:
    """Every pod template, wherever the kind keeps it."""
    if _is(root, "v1", "Pod"):
        yield from _pod(root, role="", owner=None)
    else:
        yield from _below(root, "", set())


def _below(node: Node, role: str, seen: set[int]) -> Iterator[Pod]:
    """Templates under ``node``; ``role`` is the last name passed that says what the pods are for."""
    if id(node) in seen:
        return
    seen.add(id(node))
    match node:
        case MappingNode():
            own = text_at(node, "name") or role
            template = mapping(node, "template")
            if template is not None:
                yield from _pod(template, role=own, owner=node)
            for key, value in node.entries:
                yield from _below(value, own if key.value in _WRAPPERS else key.value, seen)
        case SequenceNode():
            for item in node.items:
                yield from _below(item, role, seen)
        case ScalarNode():
            return


def _pod(template: MappingNode, *, role: str, owner: MappingNode | None) -> Iterator[Pod]:
    spec = mapping(template, "spec")
    if spec is not None and isinstance(spec.get("containers"), SequenceNode):
        yield Pod(
            template=template,
            spec=spec,
            role=role,
            replicas=scalar(owner, "replicas"),
            restart_policy=scalar(spec, "restartPolicy") or scalar(owner, "restartPolicy"),
        )
