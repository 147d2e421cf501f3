"""Rules about who is told to save: the label that asks for it, the signal, the hook."""

from collections.abc import Iterator

from faultrun.manifests.command import Stays, stays
from faultrun.manifests.edits import first_entry, inside, replaced
from faultrun.manifests.finding import Finding
from faultrun.manifests.page import Page
from faultrun.manifests.platform_maps import platform_maps
from faultrun.manifests.workload import FAULT_LABEL, Container, Workload
from faultrun.text.yaml_tree import Node, ScalarNode, dig, items, scalar, text_at

_KNOWN = frozenset({"grace", "force", "off"})
_MEANT_OFF = frozenset({"false", "no", "none", "disable", "disabled"})
_FAULT_MAPS = ("fault-config-", "reset-config-")


def fault_scheduling_means_something(page: Page) -> Iterator[Finding]:
    """The fault-scheduling label: known values, and one that leaves time to save where that is wanted."""
    for workload in page.manifest.workloads:
        label = workload.fault_scheduling
        if label is None:
            yield from _no_label(page, workload)
        elif label.value not in _KNOWN | _MEANT_OFF:
            yield Finding(
                line=label.line,
                rule=FAULT_LABEL,
                what=f"{FAULT_LABEL} is {label.value!r}",
                why="any value but grace, force and off counts as off",
                fix="write grace",
                patches=(replaced(label, "grace"),),
            )
        elif label.value == "force" and any(one.means_to_save for one in workload.containers):
            yield Finding(
                line=label.line,
                rule=FAULT_LABEL,
                what=f"{FAULT_LABEL} is force, and the container means to save when it is stopped",
                why="force deletes the pod at once: neither preStop hook nor SIGTERM gets time",
                fix="write grace",
                patches=(replaced(label, "grace"),),
            )


def signal_arrives(page: Page) -> Iterator[Finding]:
    """A shell as PID 1: the kernel drops SIGTERM for it, and it passes nothing on."""
    for workload in page.manifest.workloads:
        for pod in workload.pods if workload.saves_when_stopped else ():
            for container in pod.trainers:
                found = stays(container.words)
                if found is not None:
                    yield _shell(page, container, found)


def somebody_is_told(page: Page) -> Iterator[Finding]:
    """Graceful rescheduling of a container in which SIGTERM reaches nobody and no hook runs."""
    for workload in page.manifest.workloads:
        label = workload.fault_scheduling
        if label is None or label.value != "grace":
            continue
        with_devices = any(one.devices for one in workload.containers)
        for container in (one for pod in workload.pods for one in pod.trainers):
            saves = bool(container.devices) or not with_devices
            if saves and container.pre_stop is None and stays(container.words) is not None:
                yield Finding(
                    line=container.node.line,
                    rule="pre-stop",
                    what=f"container {container.name} has no preStop hook, and a shell takes its SIGTERM",
                    why=f"{FAULT_LABEL} is grace, and nobody in the container learns that it should save",
                    fix="start faultrun without a shell, or add lifecycle.preStop",
                )


def commands_are_lists_of_words(page: Page) -> Iterator[Finding]:
    """``command: ["python train.py"]``: no program has such a name."""
    for workload in page.manifest.workloads:
        for container in workload.containers:
            yield from _words_apart("command", dig(container.node, "command"))
            yield from _words_apart("preStop command", dig(container.pre_stop, "exec", "command"))


def _no_label(page: Page, workload: Workload) -> Iterator[Finding]:
    """Rescheduling is set up, with config map and hook or with a label in the wrong place, and never on."""
    yield from _label_on_a_config_map(page, workload)
    if not workload.by_volcano or not any(one.pre_stop for one in workload.containers):
        return
    volumes = (
        text_at(volume, "configMap", "name") for pod in workload.pods for volume in items(pod.spec, "volumes")
    )
    named = next((name for name in volumes if name.startswith(_FAULT_MAPS)), "")
    if named and workload.name is not None:
        labels = workload.labels
        patch = first_entry(page.text, labels, f"{FAULT_LABEL}: grace") if labels else None
        yield Finding(
            line=workload.name.line,
            rule=FAULT_LABEL,
            what=f"{workload.shown} mounts {named} and has no label {FAULT_LABEL}",
            why="that is the same as off: no fault reschedules it, and the hook is not called for one",
            fix=f"add {FAULT_LABEL}: grace to metadata.labels",
            patches=(patch,) if patch else (),
        )


def _label_on_a_config_map(page: Page, workload: Workload) -> Iterator[Finding]:
    """The label stands on the job's config map, where nobody looks for it."""
    for config_map, platform in platform_maps(page):
        label = scalar(config_map.root, "metadata", "labels", FAULT_LABEL)
        own = platform.prefix + text_at(workload.root, "metadata", "name")
        if label is None or text_at(config_map.root, "metadata", "name") != own:
            continue
        yield Finding(
            line=label.line,
            rule=FAULT_LABEL,
            what=f"{FAULT_LABEL} stands on the config map, and {workload.shown} has none",
            why="Volcano looks for it on the job: without it no fault reschedules the job",
            fix=f"move it to the labels of {workload.shown}",
        )


def _shell(page: Page, container: Container, found: Stays) -> Finding:
    node = container.word_nodes[found.shell.word]
    assert isinstance(node, ScalarNode)
    patch = inside(page.text, node, found.exec_at, "exec ") if found.exec_at is not None else None
    return Finding(
        line=node.line,
        rule="shell-pid-1",
        what=f"container {container.name} starts {found.shell.name} -c without exec",
        why="the shell stays PID 1 (every sh, bash before 5.1, any script it ends with), and takes SIGTERM "
        "without passing it on: the stop ends with SIGKILL",
        fix=f"exec {found.last}"
        if found.last
        else "end the script with exec PROGRAM, or start it without a shell",
        patches=(patch,) if patch else (),
    )


def _words_apart(holder: str, command: Node | None) -> Iterator[Finding]:
    words = items(command)
    first = words[0] if words else command
    if not isinstance(first, ScalarNode):
        return
    parts = first.value.split()
    if words and len(parts) < 2:
        return
    yield Finding(
        line=first.line,
        rule="exec-form",
        what=f"{holder} is {'one word' if words else 'a string'}: {' '.join(parts)!r}",
        why="no shell takes it apart: it is the name of one program, which does not exist"
        if words
        else "the API server wants a list of words",
        fix=f"[{', '.join(parts[:3])}{', ...' if len(parts) > 3 else ''}]",
    )
