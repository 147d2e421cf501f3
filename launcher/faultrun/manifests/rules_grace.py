"""Rules about the time to save: how long it is, and what the preStop hook leaves of it."""

import re
from collections.abc import Iterator

from faultrun.manifests.command import commands_of, shell_of
from faultrun.manifests.edits import replaced
from faultrun.manifests.finding import Finding
from faultrun.manifests.page import Page
from faultrun.manifests.workload import Container
from faultrun.text.yaml_tree import ScalarNode, items, scalar

_USUAL_GRACE_S = 360
_DEFAULT_GRACE_S = 30
_SLEEP = re.compile(r"(\d{1,6})(s|m|h|)")
_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600}


def grace_below_grace_over_time(page: Page) -> Iterator[Finding]:
    """0 < terminationGracePeriodSeconds < grace-over-time, on what Ascend's Volcano deletes."""
    limit_s = page.grace_over_time_s
    usual_s = min(_USUAL_GRACE_S, limit_s * 9 // 10)
    for workload in page.manifest.workloads:
        for pod in workload.pods if workload.by_volcano else ():
            grace = pod.grace
            if grace is None or grace.number is None or 0 < grace.number < limit_s:
                continue
            if grace.number <= 0:
                why, wanted_s = "the container is killed at once and saves nothing", usual_s
            else:
                why = "the pod is deleted by force at that moment, while it may still be saving"
                wanted_s = limit_s * 9 // 10
            yield Finding(
                line=grace.line,
                rule="grace-over-time",
                what=f"terminationGracePeriodSeconds is {grace.number}, "
                f"not between 0 and grace-over-time ({limit_s}, {page.source})",
                why=why,
                fix=f"set it to {wanted_s}",
                patches=(replaced(grace, wanted_s),),
            )


def grace_is_time(page: Page) -> Iterator[Finding]:
    """A workload that wants to save and is given no time, outside of Volcano."""
    for workload in page.manifest.workloads:
        if workload.by_volcano or not workload.saves_when_stopped:
            continue
        for pod in workload.pods:
            grace = pod.grace
            if grace is not None and grace.number is not None and grace.number <= 0:
                yield Finding(
                    line=grace.line,
                    rule="grace-period",
                    what=f"terminationGracePeriodSeconds is {grace.number}",
                    why="the container is killed at once and saves nothing",
                    fix=f"set it to {_USUAL_GRACE_S}",
                    patches=(replaced(grace, _USUAL_GRACE_S),),
                )


def hook_and_signal_fit(page: Page) -> Iterator[Finding]:
    """The preStop hook runs inside the grace period; what it takes is gone for the signal."""
    for workload in page.manifest.workloads:
        for pod in workload.pods:
            written = pod.grace.number if pod.grace else None
            total_s = _DEFAULT_GRACE_S if pod.grace is None else written
            for container in pod.containers if total_s else ():
                hook_s = _hook_s(container)
                if total_s is not None and hook_s is not None and hook_s[0] >= total_s:
                    yield Finding(
                        line=hook_s[1],
                        rule="hook-time",
                        what=f"the preStop hook takes {hook_s[0]} s of the {total_s} s that a stop may take",
                        why="the hook runs inside that time, and SIGKILL then follows SIGTERM at once",
                        fix="make the hook shorter or the period longer",
                    )


def _hook_s(container: Container) -> tuple[int, int] | None:
    """Seconds that the preStop hook sleeps, as far as it says, and the line; None if it does not say."""
    hook = container.pre_stop
    if hook is None:
        return None
    sleep = scalar(hook, "sleep", "seconds")
    if sleep is not None and sleep.number is not None:
        return sleep.number, sleep.line
    nodes = [node for node in items(hook, "exec", "command") if isinstance(node, ScalarNode)]
    words = tuple(node.value for node in nodes)
    shell = shell_of(words)
    commands = [command.words for command in commands_of(shell.script)] if shell else [words]
    slept_s = [_sleep_s(command) for command in commands]
    return (sum(slept_s), nodes[0].line) if any(slept_s) else None


def _sleep_s(words: tuple[str, ...]) -> int:
    match = _SLEEP.fullmatch(words[1]) if len(words) == 2 and words[0] == "sleep" else None
    return int(match[1]) * _UNITS_S[match[2]] if match else 0
