"""Rules about a container that runs faultrun: what its options ask of the pod, and the pod of its options."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from faultrun.manifests.command import faultrun_of
from faultrun.manifests.finding import LintFinding, found
from faultrun.manifests.lint_input import LintInput
from faultrun.manifests.workload import Container
from faultrun.model.spec.output import Logs
from faultrun.model.spec.windows import PLATFORM_MARGIN_S, TERMINATION_VARIABLE, Windows
from faultrun.text.yaml_tree import dig, scalar, text_at

LOG_DIR_VARIABLE = "FAULTRUN_LOG_DIR"


def options_are_understood(page: LintInput) -> Iterator[LintFinding]:
    """A command line that faultrun itself would refuse."""
    for call in page.calls:
        if call.refused is not None:
            because, hint = call.refused.because, call.refused.hint
            yield found("faultrun-options", call.where, what=call.refused.what, because=because, hint=hint)


def period_is_told(page: LintInput) -> Iterator[LintFinding]:
    """Kubernetes does not tell a container its grace period; the manifest must."""
    for call in page.calls:
        pod = call.container.pod
        said = {"variable": TERMINATION_VARIABLE, "total_s": pod.grace_s}
        if (told := call.container.variable(TERMINATION_VARIABLE)) is not None:
            if pod.grace_s is not None and told.number != pod.grace_s:
                yield found("grace-variable", told, told=told.value, **said)
        elif pod.grace and pod.grace_s and pod.grace_s > 0 and call.asked.stop_grace_s is None:
            usual_s = f"{Windows().stop_grace_s:g}"
            yield found("grace-variable/missing", pod.grace, usual_s=usual_s, **said)


def stop_grace_fits(page: LintInput) -> Iterator[LintFinding]:
    """--stop_grace and the time to kill and sweep fit into the grace period."""
    for call in page.calls:
        wanted_s, pod = call.asked.stop_grace_s, call.container.pod
        if wanted_s is not None and pod.grace_s is not None and wanted_s + PLATFORM_MARGIN_S > pod.grace_s:
            said = {"margin_s": PLATFORM_MARGIN_S, "fits_s": int(wanted_s + 2 * PLATFORM_MARGIN_S)}
            yield found("stop-grace", pod.grace or call.where, wanted_s=wanted_s, total_s=pod.grace_s, **said)


def checkpoints_outlive_the_pod(page: LintInput) -> Iterator[LintFinding]:
    """A checkpoint in the container, or in an emptyDir, is gone when the pod is rescheduled."""
    for call in page.calls:
        for folder in call.asked.checkpoint_dirs:
            if _is_lost(call.container, folder):
                where = "an emptyDir" if _mount_of(call.container, folder) else "the container, on no volume"
                yield found("checkpoint-volume", call.where, folder=folder, where=where)


def log_dir_can_be_written(page: LintInput) -> Iterator[LintFinding]:
    """With a read-only root file system the log_dir needs a volume."""
    for call in page.calls:
        read_only = scalar(call.container.node, "securityContext", "readOnlyRootFilesystem")
        folder = call.asked.log_dir or ""
        on_root = folder.startswith("/") and _mount_of(call.container, folder) is None
        if read_only is not None and read_only.value == "true" and on_root:
            yield found("log-dir", read_only, folder=folder)


def lost_log_dir_resumes(page: LintInput) -> Iterator[LintFinding]:
    """A rescheduled pod without its log_dir knows of no run to continue, unless --resume=always."""
    for call in page.calls:
        folder = call.asked.log_dir
        if folder is None or call.asked.resume is not None or not call.asked.checkpoint_dirs:
            continue
        if _is_lost(call.container, folder):
            yield found("resume", call.where, folder=folder)


def hook_finds_the_run(page: LintInput) -> Iterator[LintFinding]:
    """``faultrun prestop`` looks in the log_dir that it is told of, which must be the run's."""
    for call in page.calls:
        nodes = call.container.hook_words
        words = faultrun_of(tuple(node.value for node in nodes))
        if not words or words[0] != "prestop" or LOG_DIR_VARIABLE in call.environ:
            continue
        told = any(word.replace("-", "_").startswith("__log_dir") for word in words)
        if not told and call.asked.log_dir is not None:
            said = {"usual": Logs().log_dir, "folder": call.asked.log_dir, "variable": LOG_DIR_VARIABLE}
            yield found("prestop-log-dir", nodes[0], **said)


def _mount_of(container: Container, folder: str) -> str | None:
    """Name of the volume that ``folder`` lies on; the deepest mount counts."""
    paths = {text_at(mount, "mountPath"): text_at(mount, "name") for mount in reversed(container.mounts)}
    below = [path for path in paths if path and PurePosixPath(folder).is_relative_to(path)]
    return paths[max(below, key=len)] if below else None


def _is_lost(container: Container, folder: str) -> bool:
    """Whether an absolute ``folder`` lies on nothing that outlives the pod."""
    name = _mount_of(container, folder)
    scratch = (one for one in container.pod.volumes if dig(one, "emptyDir") is not None)
    return folder.startswith("/") and (name is None or name in {text_at(one, "name") for one in scratch})
