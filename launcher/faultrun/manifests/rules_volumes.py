"""Rules about volumes: mounts that name one, shared memory, and the files that the platform writes."""

from collections.abc import Iterator

from faultrun.manifests.finding import Finding
from faultrun.manifests.page import Page
from faultrun.manifests.platform_maps import platform_map
from faultrun.manifests.quantity import quantity
from faultrun.manifests.workload import Container, Kind, Pod, Workload
from faultrun.text.yaml_tree import items, mapping, scalar, text_at

_SHM = "/dev/shm"
_BUILT_IN = frozenset({"v1", "apps/v1", "batch/v1", "batch/v1beta1"})


def mounts_name_volumes(page: Page) -> Iterator[Finding]:
    """Mounts without a name or path, and mounts of volumes that are not there."""
    for workload in page.manifest.workloads:
        claims = {
            text_at(claim, "metadata", "name")
            for claim in items(workload.root, "spec", "volumeClaimTemplates")
        }
        for pod in workload.pods:
            known = {text_at(volume, "name") for volume in items(pod.spec, "volumes")} | claims
            for container in pod.containers:
                yield from _mounts(container, known if _lists_its_volumes(workload) else None)


def platform_files_arrive(page: Page) -> Iterator[Finding]:
    """The platform's config maps: mounted at all, and in a way in which changes come through."""
    for workload in page.manifest.workloads:
        for pod in workload.pods:
            for volume in items(pod.spec, "volumes"):
                name = scalar(volume, "configMap", "name")
                platform = platform_map(name.value) if name else None
                mounts = [
                    mount
                    for container in pod.containers
                    for mount in items(container.node, "volumeMounts")
                    if text_at(mount, "name") == text_at(volume, "name")
                ]
                if name is None or platform is None:
                    continue
                if not mounts:
                    yield Finding(
                        line=name.line,
                        rule="config-map-mount",
                        what=f"{name.value} is a volume that no container mounts",
                        why=f"nobody reads {platform.holds}",
                        fix=f"mount it at {platform.folder}",
                    )
                for mount in mounts:
                    sub_path = scalar(mount, "subPath")
                    if sub_path is not None:
                        yield Finding(
                            line=sub_path.line,
                            rule="sub-path",
                            what=f"{name.value} is mounted with subPath",
                            why=f"Kubernetes never updates such a mount: {platform.key} stays as it is now",
                            fix=f"mount the volume at {platform.folder} without subPath",
                        )


def shared_memory_is_large(page: Page) -> Iterator[Finding]:
    """Data loaders and collectives need more than the 64 MiB that a container gets."""
    for workload in page.manifest.workloads:
        for pod in workload.pods:
            for container in pod.trainers if text_at(pod.spec, "hostIPC") != "true" else ():
                yield from _shm(pod, container)


def _lists_its_volumes(workload: Workload) -> bool:
    """Whether nothing but the pod template adds volumes; kinds that are not known may."""
    return workload.kind is not Kind.OTHER or text_at(workload.root, "apiVersion") in _BUILT_IN


def _mounts(container: Container, known: set[str] | None) -> Iterator[Finding]:
    for mount in items(container.node, "volumeMounts"):
        name, path = scalar(mount, "name"), scalar(mount, "mountPath")
        missing = [word for word, found in (("name", name), ("mountPath", path)) if found is None]
        if missing:
            yield Finding(
                line=mount.line,
                rule="volume-mount",
                what=f"a mount of {container.name} has no {' and no '.join(missing)}",
                why="the API server refuses it; a '-' too many makes two mounts of one",
                fix="give each mount name and mountPath",
            )
        elif name is not None and known is not None and name.value not in known:
            yield Finding(
                line=name.line,
                rule="volume-mount",
                what=f"{container.name} mounts {name.value}, and the pod has no such volume",
                why="the API server refuses it",
                fix="add the volume, or take the mount out",
            )


def _shm(pod: Pod, container: Container) -> Iterator[Finding]:
    mounts = items(container.node, "volumeMounts")
    mount = next((one for one in mounts if text_at(one, "mountPath").rstrip("/") == _SHM), None)
    if mount is None and container.means_to_save and container.devices:
        yield Finding(
            line=container.node.line,
            rule="shm",
            what=f"container {container.name} has no volume at {_SHM}",
            why="a container has 64 MiB of shared memory, too little for data loaders and collectives",
            fix="mount an emptyDir with medium: Memory there",
        )
    volumes = items(pod.spec, "volumes")
    volume = next((one for one in volumes if mount and text_at(one, "name") == text_at(mount, "name")), None)
    empty_dir = mapping(volume, "emptyDir")
    if empty_dir is None:
        return
    if text_at(empty_dir, "medium") != "Memory":
        yield Finding(
            line=empty_dir.line,
            rule="shm",
            what=f"the volume at {_SHM} is not in memory",
            why="without medium: Memory an emptyDir is a directory on the node's disk",
            fix="medium: Memory",
        )
        return
    size, memory = scalar(empty_dir, "sizeLimit"), scalar(container.node, "resources", "limits", "memory")
    asked, most = (quantity(one.value) if one else None for one in (size, memory))
    if size and memory and asked is not None and most is not None and asked > most:
        yield Finding(
            line=size.line,
            rule="shm",
            what=f"{_SHM} may grow to {size.value}, and the memory limit is {memory.value}",
            why="what lies in it counts as the container's memory: it is killed before the volume is full",
            fix="raise limits.memory above sizeLimit",
        )
