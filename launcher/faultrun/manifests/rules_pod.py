"""Rules about containers and volumes: devices, images, mounts, shared memory, what the operator expects."""

import re
from collections.abc import Iterator

from faultrun.manifests.edits import before, replaced
from faultrun.manifests.finding import LintFinding, found
from faultrun.manifests.lint_input import LintInput
from faultrun.manifests.workload import Container, Workload, WorkloadKind, is_extended, platform_map, quantity
from faultrun.text.yaml_tree import Node, ScalarNode, entries, items, mapping, scalar, text_at

_ANNOTATION = re.compile(r"metadata\.annotations\['([^']+)'\]")
_VISIBLE_DEVICES = "ASCEND_VISIBLE_DEVICES"
_OPERATORS_CONTAINER = "ascend"
_FRAMEWORKS = frozenset({"mindspore", "pytorch", "tensorflow"})
_SHM = "/dev/shm"
_BUILT_IN = frozenset({"v1", "apps/v1", "batch/v1", "batch/v1beta1"})


def requests_equal_limits(page: LintInput) -> Iterator[LintFinding]:
    """Devices can be neither shared nor overcommitted; nothing may be requested above its limit."""
    for container in page.containers:
        limits = {key.value: value for key, value in entries(container.node, "resources", "limits")}
        for key, value in entries(container.node, "resources", "requests"):
            if isinstance(value, ScalarNode):
                yield from _against_limit(key, value, limits.get(key.value))


def visible_devices_are_requested(page: LintInput) -> Iterator[LintFinding]:
    """ASCEND_VISIBLE_DEVICES reads the annotation of the resource that is asked for."""
    for container in page.containers:
        asked = [name for name in container.devices if name.startswith("huawei.com/")]
        for entry in container.variables if asked else ():
            path = scalar(entry, "valueFrom", "fieldRef", "fieldPath")
            match = _ANNOTATION.fullmatch(path.value) if path else None
            if path and match and text_at(entry, "name") == _VISIBLE_DEVICES and match[1] not in asked:
                patch = replaced(path, f"metadata.annotations['{asked[0]}']")
                yield found("visible-devices", path, patch, read=match[1], asked=asked[0])


def image_is_there_at_a_restart(page: LintInput) -> Iterator[LintFinding]:
    """A restart that must ask the registry can fail, or come back with another image."""
    for container in page.containers:
        image, policy = scalar(container.node, "image"), scalar(container.node, "imagePullPolicy")
        if not container.pod.job.saves_when_stopped or image is None or "@sha256:" in image.value:
            continue
        if policy is not None and policy.value == "Always":
            yield found("image-pull", policy, replaced(policy, "IfNotPresent"), container=container.name)
        elif policy is None and image.value.rpartition("/")[2].partition(":")[2] in {"", "latest"}:
            key = None if container.node.flow else container.node.key("image")
            patch = before(page.text, key, "imagePullPolicy: IfNotPresent") if key else None
            yield found("image-pull/tag", image, patch, image=image.value)


def ascend_operator_finds_its_container(page: LintInput) -> Iterator[LintFinding]:
    """The operator looks for a container named ``ascend`` and for the label ``framework``."""
    for job in (one for one in page.workloads if one.kind is WorkloadKind.ASCENDJOB):
        framework = job.label("framework")
        if framework is None or framework.value not in _FRAMEWORKS:
            known = ", ".join(sorted(_FRAMEWORKS))
            if framework is None:
                yield found("framework/missing", job.name or job.root, known=known)
            else:
                yield found("framework", framework, value=framework.value, known=known)
        for pod in job.pods:
            if pod.containers and all(one.name != _OPERATORS_CONTAINER for one in pod.containers):
                first = pod.containers[0].node
                name = scalar(first, "name")
                patch = replaced(name, _OPERATORS_CONTAINER) if name and len(pod.containers) == 1 else None
                yield found("ascend-container", name or first, patch, role=pod.role or "the pod")


def mounts_name_volumes(page: LintInput) -> Iterator[LintFinding]:
    """Mounts without a name or path, and mounts of volumes that are not there."""
    for container in page.containers:
        job, listed = container.pod.job, items(container.pod.job.root, "spec", "volumeClaimTemplates")
        known = {text_at(volume, "name") for volume in container.pod.volumes}
        known |= {text_at(claim, "metadata", "name") for claim in listed}
        for mount in container.mounts:
            name, path = scalar(mount, "name"), scalar(mount, "mountPath")
            missing = [word for word, one in (("name", name), ("mountPath", path)) if one is None]
            if missing:
                said = {"container": container.name, "missing": " and no ".join(missing)}
                yield found("volume-mount/incomplete", mount, **said)
            elif name is not None and _lists_its_volumes(job) and name.value not in known:
                yield found("volume-mount", name, container=container.name, volume=name.value)


def platform_files_arrive(page: LintInput) -> Iterator[LintFinding]:
    """The platform's config maps: mounted at all, and in a way in which changes come through."""
    for pod in page.pods:
        mounts = [mount for container in pod.containers for mount in container.mounts]
        for volume in pod.volumes:
            name = scalar(volume, "configMap", "name")
            platform = platform_map(name.value) if name else None
            if name is None or platform is None:
                continue
            own = [mount for mount in mounts if text_at(mount, "name") == text_at(volume, "name")]
            said = {"map": name.value, "platform": platform}
            if not own:
                yield found("config-map-mount", name, **said)
            for sub_path in filter(None, (scalar(mount, "subPath") for mount in own)):
                yield found("sub-path", sub_path, **said)


def shared_memory_is_large(page: LintInput) -> Iterator[LintFinding]:
    """Data loaders and collectives need more than the 64 MiB that a container gets."""
    for pod in page.pods:
        for container in pod.trainers if text_at(pod.spec, "hostIPC") != "true" else ():
            yield from _shm(container)


def _against_limit(key: ScalarNode, value: ScalarNode, limit: Node | None) -> Iterator[LintFinding]:
    device = is_extended(key.value)
    if not isinstance(limit, ScalarNode):
        if device:
            yield found("requests-limits/missing", key, key=key.value, value=value.value)
        return
    wanted, allowed = quantity(value.value), quantity(limit.value)
    if wanted is None or allowed is None or wanted == allowed or (wanted < allowed and not device):
        return
    patch = replaced(limit, value.value if value.number is None else value.number) if device else None
    wording = "requests-limits/device" if device else "requests-limits"
    yield found(wording, limit, patch, key=key.value, value=value.value, limit=limit.value)


def _lists_its_volumes(job: Workload) -> bool:
    """Whether nothing but the pod template adds volumes; kinds that are not known may."""
    return job.kind is not WorkloadKind.OTHER or text_at(job.root, "apiVersion") in _BUILT_IN


def _shm(container: Container) -> Iterator[LintFinding]:
    mount = next((one for one in container.mounts if text_at(one, "mountPath").rstrip("/") == _SHM), None)
    if mount is None:
        if container.means_to_save and container.devices:
            yield found("shm", container.node, container=container.name)
        return
    name = text_at(mount, "name")
    volume = next((one for one in container.pod.volumes if text_at(one, "name") == name), None)
    empty_dir = mapping(volume, "emptyDir")
    if empty_dir is None:
        return
    if text_at(empty_dir, "medium") != "Memory":
        yield found("shm/disk", empty_dir)
        return
    size, memory = scalar(empty_dir, "sizeLimit"), scalar(container.node, "resources", "limits", "memory")
    asked, most = (quantity(one.value) if one else None for one in (size, memory))
    if size and memory and asked is not None and most is not None and asked > most:
        yield found("shm/limit", size, size=size.value, memory=memory.value)
