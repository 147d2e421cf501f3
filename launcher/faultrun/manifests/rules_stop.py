"""Rules about a stop: who is told to save, by label, signal and hook, and how long there is for it."""

import re
from collections.abc import Iterator

from faultrun.manifests.command import commands_of, faultrun_of, shell_of, stays
from faultrun.manifests.finding import LintFinding, found
from faultrun.manifests.lint_input import LintInput
from faultrun.manifests.workload import FAULT_LABEL, Container, Workload
from faultrun.text.yaml_tree import Node, scalar, text_at

_USUAL_GRACE_S = 360
_SLEEP = re.compile(r"(\d{1,6})(s|m|h|)")
_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600}
_KNOWN = frozenset({"grace", "force", "off"})
_MEANT_OFF = frozenset({"false", "no", "none", "disable", "disabled"})
_FAULT_MAPS = ("fault-config-", "reset-config-")


def grace_below_grace_over_time(page: LintInput) -> Iterator[LintFinding]:
    """0 < terminationGracePeriodSeconds < grace-over-time, on what Ascend's Volcano deletes."""
    limit_s, source = page.grace_over_time
    longest_s = limit_s * 9 // 10
    for pod in page.pods:
        grace = pod.grace
        if not pod.job.by_volcano or grace is None or grace.number is None or 0 < grace.number < limit_s:
            continue
        none = grace.number <= 0
        wording = "grace-over-time/none" if none else "grace-over-time"
        wanted_s = min(_USUAL_GRACE_S, longest_s) if none else longest_s
        said = {"grace_s": grace.number, "limit_s": limit_s, "source": source, "wanted_s": wanted_s}
        yield found(wording, grace, **said)


def grace_is_time(page: LintInput) -> Iterator[LintFinding]:
    """A workload that wants to save and is given no time, outside of Volcano."""
    for pod in page.pods:
        grace = None if pod.job.by_volcano or not pod.job.saves_when_stopped else pod.grace
        if grace is not None and grace.number is not None and grace.number <= 0:
            yield found("grace-period", grace, grace_s=grace.number, wanted_s=_USUAL_GRACE_S)


def hook_and_signal_fit(page: LintInput) -> Iterator[LintFinding]:
    """The preStop hook runs inside the grace period; what it takes is gone for the signal."""
    for container in page.containers:
        total_s, hook = container.pod.grace_s, _hook_s(container)
        if total_s and hook is not None and hook[0] >= total_s:
            yield found("hook-time", hook[1], hook_s=hook[0], total_s=total_s)


def fault_scheduling_means_something(page: LintInput) -> Iterator[LintFinding]:
    """The fault-scheduling label: known values, and one that leaves time to save where that is wanted."""
    for job in page.workloads:
        if (label := job.fault_scheduling) is None:
            yield from _no_label(page, job)
        elif label.value not in _KNOWN | _MEANT_OFF:
            yield found("fault-scheduling", label, value=label.value)
        elif label.value == "force" and any(one.means_to_save for one in job.containers):
            yield found("fault-scheduling/force", label)


def signal_arrives(page: LintInput) -> Iterator[LintFinding]:
    """A shell as PID 1: the kernel drops SIGTERM for it, and it passes nothing on."""
    for container in (one for pod in page.pods for one in pod.trainers):
        shell = stays(container.words) if container.pod.job.saves_when_stopped else None
        if shell is None:
            continue
        node = container.word_nodes[shell.shell.word]
        wording = "shell-pid-1" if shell.last else "shell-pid-1/script"
        yield found(wording, node, container=container.name, shell=shell.shell.name, last=shell.last)


def somebody_is_told(page: LintInput) -> Iterator[LintFinding]:
    """Graceful rescheduling of a container in which SIGTERM reaches no process and no hook runs."""
    for job in page.workloads:
        if job.fault_scheduling is None or job.fault_scheduling.value != "grace":
            continue
        with_devices = any(one.devices for one in job.containers)
        for container in (one for pod in job.pods for one in pod.trainers):
            saves = bool(container.devices) or not with_devices
            if saves and container.pre_stop is None and stays(container.words) is not None:
                yield found("pre-stop", container.node, container=container.name)


def commands_are_several_words(page: LintInput) -> Iterator[LintFinding]:
    """``command: ["faultrun train.py"]``: no program has such a name, be it ours or that of a hook."""
    for container in page.containers:
        for holder, nodes in (
            ("command", container.word_nodes[:1]),
            ("preStop command", container.hook_words),
        ):
            parts = nodes[0].value.split() if nodes else []
            ours = holder != "command" or faultrun_of(tuple(parts)) is not None
            if len(parts) > 1 and ours:
                apart = ", ".join([*parts[:3], *(["..."] if len(parts) > 3 else [])])
                yield found("exec-form", nodes[0], holder=holder, words=" ".join(parts), apart=apart)


def _hook_s(container: Container) -> tuple[int, Node] | None:
    """Seconds that the preStop hook sleeps, as far as it says, and where; None if it does not say."""
    sleep = scalar(container.pre_stop, "sleep", "seconds")
    if sleep is not None and sleep.number is not None:
        return sleep.number, sleep
    words = tuple(node.value for node in container.hook_words)
    shell = shell_of(words)
    commands = commands_of(shell.script) if shell else [words]
    slept_s = sum(map(_sleep_s, commands))
    return (slept_s, container.hook_words[0]) if slept_s else None


def _sleep_s(words: tuple[str, ...]) -> int:
    match = _SLEEP.fullmatch(words[1]) if len(words) == 2 and words[0] == "sleep" else None
    return int(match[1]) * _UNITS_S[match[2]] if match else 0


def _no_label(page: LintInput, job: Workload) -> Iterator[LintFinding]:
    """Rescheduling is set up, with config map and hook or with a label in the wrong place, and never on."""
    for config_map in page.config_maps:
        if (label := config_map.label(FAULT_LABEL)) is not None and config_map.is_of(job):
            yield found("fault-scheduling/config-map", label, job=job.shown)
    if not job.by_volcano or not any(one.pre_stop for one in job.containers):
        return
    volumes = (text_at(volume, "configMap", "name") for pod in job.pods for volume in pod.volumes)
    mounted = next((name for name in volumes if name.startswith(_FAULT_MAPS)), "")
    if mounted and job.name is not None:
        yield found("fault-scheduling/missing", job.name, job=job.shown, mounted=mounted)
