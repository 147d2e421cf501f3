"""Rules about one container: its devices, its image, and what the Ascend Operator expects of it."""

import re
from collections.abc import Iterator

from faultrun.manifests.edits import before, replaced
from faultrun.manifests.finding import Finding
from faultrun.manifests.page import Page
from faultrun.manifests.quantity import quantity
from faultrun.manifests.workload import Container, Kind, is_extended
from faultrun.text.patch import Patch
from faultrun.text.yaml_tree import ScalarNode, entries, items, scalar, text_at

_ANNOTATION = re.compile(r"metadata\.annotations\['([^']+)'\]")
_VISIBLE_DEVICES = "ASCEND_VISIBLE_DEVICES"
_OPERATORS_CONTAINER = "ascend"
_FRAMEWORKS = frozenset({"mindspore", "pytorch", "tensorflow"})


def requests_equal_limits(page: Page) -> Iterator[Finding]:
    """Devices can be neither shared nor overcommitted; nothing may be requested above its limit."""
    for container in _containers(page):
        limits = {key.value: value for key, value in entries(container.node, "resources", "limits")}
        requested = entries(container.node, "resources", "requests")
        for key, value in requested:
            if isinstance(value, ScalarNode):
                yield from _against_limit(key, value, limits.get(key.value))


def visible_devices_are_requested(page: Page) -> Iterator[Finding]:
    """ASCEND_VISIBLE_DEVICES reads the annotation of the resource that is asked for."""
    for container in _containers(page):
        asked = [name for name in container.devices if name.startswith("huawei.com/")]
        for entry in items(container.node, "env"):
            path = scalar(entry, "valueFrom", "fieldRef", "fieldPath")
            match = _ANNOTATION.fullmatch(path.value) if path else None
            if text_at(entry, "name") != _VISIBLE_DEVICES or path is None or match is None or not asked:
                continue
            if match[1] not in asked:
                yield Finding(
                    line=path.line,
                    rule="visible-devices",
                    what=f"{_VISIBLE_DEVICES} reads {match[1]}, and the container asks for {asked[0]}",
                    why="the annotation stays empty and the container sees no device",
                    fix=f"metadata.annotations['{asked[0]}']",
                    patches=(replaced(path, f"metadata.annotations['{asked[0]}']"),),
                )


def image_is_there_at_a_restart(page: Page) -> Iterator[Finding]:
    """A restart that must ask the registry can fail, or come back with another image."""
    for workload in page.manifest.workloads:
        for container in workload.containers if workload.saves_when_stopped else ():
            image, policy = scalar(container.node, "image"), scalar(container.node, "imagePullPolicy")
            if image is None or "@sha256:" in image.value:
                continue
            if policy is not None and policy.value == "Always":
                what = f"imagePullPolicy of {container.name} is Always"
                patch: Patch | None = replaced(policy, "IfNotPresent")
            elif policy is None and _moving_tag(image.value):
                what = f"{image.value} has no fixed tag and no imagePullPolicy, which makes that Always"
                key = None if container.node.flow else container.node.key("image")
                patch = before(page.text, key, "imagePullPolicy: IfNotPresent") if key else None
            else:
                continue
            yield Finding(
                line=(policy or image).line,
                rule="image-pull",
                what=what,
                why="every restart asks the registry, which may be away or have another image by then",
                fix="imagePullPolicy: IfNotPresent, and a tag that does not move",
                patches=(patch,) if patch else (),
            )


def ascend_operator_finds_its_container(page: Page) -> Iterator[Finding]:
    """The operator looks for a container named ``ascend`` and for the label ``framework``."""
    for job in page.manifest.workloads:
        if job.kind is not Kind.ASCENDJOB:
            continue
        framework = scalar(job.labels, "framework")
        if framework is None or framework.value not in _FRAMEWORKS:
            where = framework or job.name
            yield Finding(
                line=where.line if where else job.root.line,
                rule="framework",
                what=f"the label framework is {framework.value!r}"
                if framework
                else "there is no label framework",
                why="the operator sets the environment of the workers by it",
                fix=f"one of {', '.join(sorted(_FRAMEWORKS))}",
            )
        for pod in job.pods:
            if pod.containers and all(one.name != _OPERATORS_CONTAINER for one in pod.containers):
                name = scalar(pod.containers[0].node, "name")
                patch = (replaced(name, _OPERATORS_CONTAINER),) if name and len(pod.containers) == 1 else ()
                yield Finding(
                    line=name.line if name else pod.containers[0].node.line,
                    rule="ascend-container",
                    what=f"no container of {pod.role or 'the pod'} is named {_OPERATORS_CONTAINER}",
                    why="the operator gives environment and port to the container of that name",
                    fix=f"name it {_OPERATORS_CONTAINER}",
                    patches=patch,
                )


def _containers(page: Page) -> Iterator[Container]:
    for workload in page.manifest.workloads:
        yield from workload.containers


def _against_limit(key: ScalarNode, value: ScalarNode, limit: object) -> Iterator[Finding]:
    device = is_extended(key.value)
    wanted = quantity(value.value)
    if not isinstance(limit, ScalarNode):
        if device:
            yield Finding(
                line=key.line,
                rule="requests-limits",
                what=f"{key.value} is requested and has no limit",
                why="devices must have the same request and limit",
                fix=f"limits: {{{key.value}: {value.value}}}",
            )
        return
    allowed = quantity(limit.value)
    if wanted is None or allowed is None or wanted == allowed or (wanted < allowed and not device):
        return
    yield Finding(
        line=limit.line,
        rule="requests-limits",
        what=f"{key.value}: {value.value} is requested and the limit is {limit.value}",
        why="devices must have the same request and limit"
        if device
        else "a request above its limit is refused",
        fix=f"write {value.value} in both",
        patches=(replaced(limit, value.value if value.number is None else value.number),) if device else (),
    )


def _moving_tag(image: str) -> bool:
    tag = image.rpartition("/")[2].partition(":")[2]
    return tag in {"", "latest"}
