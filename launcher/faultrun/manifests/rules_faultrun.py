"""Rules about a container that runs faultrun: what its options ask of the pod, and the pod of its options."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from faultrun.errors import FaultrunError
from faultrun.manifests.command import faultrun_of
from faultrun.manifests.edits import before
from faultrun.manifests.finding import Finding
from faultrun.manifests.page import Page, Wishes
from faultrun.manifests.workload import Container, Pod, Workload
from faultrun.model.spec import TERMINATION_VARIABLE
from faultrun.text.patch import Patch
from faultrun.text.yaml_tree import MappingNode, ScalarNode, SequenceNode, dig, items, scalar, text_at

LOG_DIR_VARIABLE = "FAULTRUN_LOG_DIR"
_MARGIN_S = 5
_DEFAULT_GRACE_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One container with faultrun in it."""

    workload: Workload
    pod: Pod
    container: Container
    words: tuple[str, ...]

    @property
    def line(self) -> int:
        """Where its command begins."""
        nodes = self.container.word_nodes
        return nodes[0].line if nodes else self.container.node.line

    @property
    def environ(self) -> dict[str, str]:
        """Its literal variables."""
        entries = items(self.container.node, "env")
        return {text_at(one, "name"): text_at(one, "value") for one in entries if scalar(one, "value")}


def options_are_understood(page: Page) -> Iterator[Finding]:
    """A command line that faultrun itself would refuse."""
    for run in _runs(page):
        refused = _read(page, run)
        if isinstance(refused, FaultrunError):
            yield Finding(
                line=run.line,
                rule="faultrun-options",
                what=f"faultrun would say: {refused.what}",
                why=refused.because,
                fix=refused.hint,
            )


def period_is_told(page: Page) -> Iterator[Finding]:
    """Kubernetes does not tell a container its grace period; the manifest must."""
    for run in _runs(page):
        total_s = run.pod.grace.number if run.pod.grace else None
        told = run.container.variable(TERMINATION_VARIABLE)
        if told is not None:
            expected_s = _DEFAULT_GRACE_S if run.pod.grace is None else total_s
            if expected_s is not None and told.number != expected_s:
                yield Finding(
                    line=told.line,
                    rule="grace-variable",
                    what=f"{TERMINATION_VARIABLE} is {told.value}, the pod's own period {expected_s} s",
                    why="faultrun plans its save by the variable, kubelet kills by the other",
                    fix=f'write "{expected_s}"',
                    patches=(Patch(start=told.start, end=told.end, new=f'"{expected_s}"'),),
                )
        elif total_s is not None and total_s > 0 and _wishes(page, run).stop_grace_s is None:
            assert run.pod.grace is not None
            yield Finding(
                line=run.pod.grace.line,
                rule="grace-variable",
                what=f"faultrun is not told of these {total_s} s",
                why=f"it takes {_DEFAULT_GRACE_S} s for granted when it is stopped",
                fix=f'add the variable {TERMINATION_VARIABLE}: "{total_s}"',
                patches=_variable(page, run.container, TERMINATION_VARIABLE, str(total_s)),
            )


def stop_grace_fits(page: Page) -> Iterator[Finding]:
    """--stop_grace and the time to kill and sweep fit into the grace period."""
    for run in _runs(page):
        wanted_s = _wishes(page, run).stop_grace_s
        total_s = _DEFAULT_GRACE_S if run.pod.grace is None else run.pod.grace.number
        if wanted_s is None or total_s is None or wanted_s + _MARGIN_S <= total_s:
            continue
        grace = run.pod.grace
        yield Finding(
            line=grace.line if grace else run.line,
            rule="stop-grace",
            what=f"stop_grace is {wanted_s:g} s and terminationGracePeriodSeconds {total_s}",
            why=f"SIGKILL comes while workers still save; {_MARGIN_S} s are needed to end and sweep them",
            fix=f"terminationGracePeriodSeconds: {int(wanted_s) + 2 * _MARGIN_S}, or a shorter stop_grace",
        )


def checkpoints_outlive_the_pod(page: Page) -> Iterator[Finding]:
    """A checkpoint in the container, or in an emptyDir, is gone when the pod is rescheduled."""
    for run in _runs(page):
        for folder in _wishes(page, run).checkpoint_dirs:
            mount = _mount_of(run.container, folder)
            if not PurePosixPath(folder).is_absolute() or (
                mount is not None and not _is_scratch(run.pod, mount)
            ):
                continue
            yield Finding(
                line=run.line,
                rule="checkpoint-volume",
                what=f"{folder} lies in {'an emptyDir' if mount else 'the container, on no volume'}",
                why="a rescheduled pod starts without it, and so from nothing",
                fix="a volume that outlives the pod",
            )


def log_dir_can_be_written(page: Page) -> Iterator[Finding]:
    """With a read-only root file system the log_dir needs a volume."""
    for run in _runs(page):
        read_only = scalar(run.container.node, "securityContext", "readOnlyRootFilesystem")
        folder = _wishes(page, run).log_dir
        if read_only is None or read_only.value != "true" or folder is None:
            continue
        if PurePosixPath(folder).is_absolute() and _mount_of(run.container, folder) is None:
            yield Finding(
                line=read_only.line,
                rule="log-dir",
                what=f"the log_dir {folder} lies on the root file system, which is read-only",
                why="faultrun ends with exit code 73",
                fix="mount a volume there",
            )


def lost_log_dir_resumes(page: Page) -> Iterator[Finding]:
    """A rescheduled pod without its log_dir knows of no run to continue, unless --resume=always."""
    for run in _runs(page):
        wishes = _wishes(page, run)
        folder = wishes.log_dir
        if wishes.resume is not None or folder is None or not wishes.checkpoint_dirs:
            continue
        mount = _mount_of(run.container, folder)
        lost = PurePosixPath(folder).is_absolute() and (mount is None or _is_scratch(run.pod, mount))
        if lost:
            yield Finding(
                line=run.line,
                rule="resume",
                what=f"the log_dir {folder} goes with the pod, and --resume is not said",
                why="a rescheduled pod finds no run to continue: it starts anew",
                fix="--resume=always",
            )


def hook_finds_the_run(page: Page) -> Iterator[Finding]:
    """``faultrun prestop`` looks in the log_dir that it is told of, which must be the run's."""
    for run in _runs(page):
        nodes = items(run.container.pre_stop, "exec", "command")
        words = faultrun_of(tuple(node.value for node in nodes if isinstance(node, ScalarNode)))
        if not words or words[0] != "prestop" or LOG_DIR_VARIABLE in run.environ:
            continue
        if any(word.replace("-", "_").startswith("__log_dir") for word in words):
            continue
        folder = _wishes(page, run).log_dir
        if folder is not None:
            yield Finding(
                line=nodes[0].line,
                rule="prestop-log-dir",
                what=f"the hook looks for the run in faultrun_log, and the run's log_dir is {folder}",
                why="it finds nothing to stop and returns at once",
                fix=f"give both by the variable {LOG_DIR_VARIABLE}",
            )


def _runs(page: Page) -> Iterator[_Run]:
    for workload in page.manifest.workloads:
        for pod in workload.pods:
            for container in pod.containers:
                if container.faultrun is not None:
                    yield _Run(workload=workload, pod=pod, container=container, words=container.faultrun)


def _wishes(page: Page, run: _Run) -> Wishes:
    found = _read(page, run)
    return Wishes() if isinstance(found, FaultrunError) else found


def _read(page: Page, run: _Run) -> Wishes | FaultrunError:
    try:
        return page.reader(run.words, run.environ)
    except FaultrunError as error:
        return error


def _mount_of(container: Container, folder: str) -> str | None:
    """Name of the volume that ``folder`` lies on; the deepest mount counts."""
    found = ""
    name: str | None = None
    for mount in items(container.node, "volumeMounts"):
        path = text_at(mount, "mountPath")
        if path and PurePosixPath(folder).is_relative_to(path) and len(path) > len(found):
            found, name = path, text_at(mount, "name")
    return name


def _is_scratch(pod: Pod, name: str) -> bool:
    volumes = items(pod.spec, "volumes")
    return any(text_at(one, "name") == name and dig(one, "emptyDir") is not None for one in volumes)


def _variable(page: Page, container: Container, name: str, value: str) -> tuple[Patch, ...]:
    """Put a variable before the first one of a block list whose dashes stand where they usually do."""
    entries = dig(container.node, "env")
    first = entries.items[0] if isinstance(entries, SequenceNode) and entries.items else None
    if not isinstance(first, MappingNode) or first.flow or not first.entries:
        return ()
    key = first.entries[0][0]
    if page.text[key.start - 2 : key.start] != "- " or key.column < 2:
        return ()
    patch = before(page.text, key, f'name: {name}\nvalue: "{value}"')
    return (Patch(start=patch.start, end=patch.end, new=patch.new[:-2] + "- "),)
