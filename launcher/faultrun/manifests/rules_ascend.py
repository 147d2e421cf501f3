"""Rules about what Ascend's components read in a job: devices, the operator's names, switches.

The values of switches are those of the Ascend documents.
"""

import re
from collections.abc import Iterator

from faultrun.manifests.finding import LintFinding, found
from faultrun.manifests.lint_input import LintInput
from faultrun.manifests.workload import WorkloadKind
from faultrun.text.yaml_tree import ScalarNode, scalar, text_at

_ANNOTATION = re.compile(r"metadata\.annotations\['([^']+)'\]")
_VISIBLE_DEVICES, _OPERATORS_CONTAINER = "ASCEND_VISIBLE_DEVICES", "ascend"
_FRAMEWORKS = frozenset({"mindspore", "pytorch", "tensorflow"})
_RECOVER_STRATEGIES = ("retry", "recover", "recover-in-place", "elastic-training", "dump", "exit")
_STRATEGIES = ("ignore", "graceExit", "forceExit", "hotSwitch")
_SWITCHES = ("pod-rescheduling", "process-recover-enable")
_MEANT_ON = frozenset({"on", "true", "yes", "enable", "enabled", "1"})
_RETRIES = "fault-retry-times"
_MOST_RETRIES = 100


def visible_devices_are_requested(page: LintInput) -> Iterator[LintFinding]:
    """ASCEND_VISIBLE_DEVICES reads the annotation of the resource that is asked for."""
    for container in page.containers:
        asked = [name for name in container.devices if name.startswith("huawei.com/")]
        for entry in container.variables if asked else ():
            path = scalar(entry, "valueFrom", "fieldRef", "fieldPath")
            match = _ANNOTATION.fullmatch(path.value) if path else None
            if path and match and text_at(entry, "name") == _VISIBLE_DEVICES and match[1] not in asked:
                yield found("visible-devices", path, read=match[1], asked=asked[0])


def ascend_operator_finds_its_container(page: LintInput) -> Iterator[LintFinding]:
    """The operator looks for a container named ``ascend`` and for the label ``framework``."""
    for job in (one for one in page.workloads if one.kind is WorkloadKind.ASCENDJOB):
        if (framework := job.label("framework")) is None or framework.value not in _FRAMEWORKS:
            known = ", ".join(sorted(_FRAMEWORKS))
            if framework is None:
                yield found("framework/missing", job.name or job.root, known=known)
            else:
                yield found("framework", framework, value=framework.value, known=known)
        for pod in job.pods:
            if pod.containers and all(one.name != _OPERATORS_CONTAINER for one in pod.containers):
                first = pod.containers[0].node
                yield found("ascend-container", scalar(first, "name") or first, role=pod.role or "the pod")


def switches_have_known_values(page: LintInput) -> Iterator[LintFinding]:
    """Labels and annotations that Ascend's components read: any other value counts as off or is dropped."""
    for job in page.workloads:
        for name in _SWITCHES:
            value = job.label(name)
            if value is not None and value.value != "on" and value.value.lower() in _MEANT_ON:
                yield _unknown(value, name, ("on",))
        health, retries = job.label("subHealthyStrategy"), job.label(_RETRIES)
        if health is not None and health.value not in _STRATEGIES:
            yield _unknown(health, "subHealthyStrategy", _STRATEGIES)
        if retries is not None and not (retries.number is not None and 0 <= retries.number <= _MOST_RETRIES):
            yield _unknown(retries, _RETRIES, ("0", "...", str(_MOST_RETRIES)))
        strategy = scalar(job.root, "metadata", "annotations", "recover-strategy")
        words = strategy.value.split(",") if strategy else []
        if strategy is not None and any(word.strip() not in _RECOVER_STRATEGIES for word in words):
            yield _unknown(strategy, "recover-strategy", _RECOVER_STRATEGIES)


def _unknown(value: ScalarNode, name: str, known: tuple[str, ...]) -> LintFinding:
    return found("switch", value, name=name, value=value.value, known=" ".join(known))
