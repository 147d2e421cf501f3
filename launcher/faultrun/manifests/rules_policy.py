"""Rules about what happens after an end: restart policies and exit codes.

The exit codes of faultrun that a restart cannot help are 64, 65, 78 and 93; Volcano's rules are those of its
admission webhook, ExitCode is that of Kubeflow's training operator.
"""

from collections.abc import Iterator

from faultrun.manifests.finding import LintFinding, found
from faultrun.manifests.lint_input import LintInput
from faultrun.manifests.workload import Workload, WorkloadKind
from faultrun.text.yaml_tree import Node, ScalarNode, dig, items, scalar, text_at

_IN_PLACE = frozenset({"OnFailure", "Always"})
_FINAL = "93"
_RESTARTING = frozenset({WorkloadKind.JOB, WorkloadKind.VCJOB, WorkloadKind.ASCENDJOB})


def policies_are_accepted(page: LintInput) -> Iterator[LintFinding]:
    """Volcano's policies: event or exit code, not 0, not both, and an exit code that Volcano sees."""
    for policy, in_place in (one for job in page.workloads for one in _policies(job)):
        events, code = dig(policy, "event") or dig(policy, "events"), scalar(policy, "exitCode")
        if (events is None) == (code is None):
            yield found("policy/both" if code else "policy/neither", policy)
        elif code is not None and code.number == 0:
            yield found("policy/zero", code)
        elif code is not None and in_place is not None:
            yield found("policy", code, code=code.value, in_place=in_place.value)


def final_exit_codes_are_final(page: LintInput) -> Iterator[LintFinding]:
    """Exit code 93 of faultrun means that a restart cannot help; the manifest should hear it."""
    for job in page.workloads:
        runs = [pod for pod in job.pods if any(one.faultrun is not None for one in pod.containers)]
        if runs and job.kind is WorkloadKind.JOB and job.name is not None and not _fails_on(job, _FINAL):
            yield found("exit-codes", job.name, job=job.shown, code=_FINAL)
        for pod in runs if job.kind in _RESTARTING else ():
            if (written := _in_place(pod.restart_policy)) is not None:
                yield found("exit-codes/in-place", written, policy=written.value, code=_FINAL)


def codes_of_other_places_are_tried_again(page: LintInput) -> Iterator[LintFinding]:
    """An operator that takes every code below 128 for final ends jobs that another pod would finish."""
    for pod in page.pods:
        written = pod.restart_policy
        runs = any(one.faultrun is not None for one in pod.containers)
        if runs and written is not None and written.value == "ExitCode":
            yield found("exit-codes/all-final", written)


def _policies(job: Workload) -> Iterator[tuple[Node, ScalarNode | None]]:
    """Volcano's policies, with the restart policy that hides exit codes from them, if all pods have one."""
    if job.kind is not WorkloadKind.VCJOB:
        return
    hidden = [_in_place(pod.restart_policy) for pod in job.pods]
    for policy in items(job.root, "spec", "policies"):
        yield policy, hidden[0] if hidden and all(hidden) else None
    for task in items(job.root, "spec", "tasks"):
        own = _in_place(scalar(task, "template", "spec", "restartPolicy"))
        for policy in items(task, "policies"):
            yield policy, own


def _in_place(policy: ScalarNode | None) -> ScalarNode | None:
    return policy if policy is not None and policy.value in _IN_PLACE else None


def _fails_on(job: Workload, code: str) -> bool:
    for rule in items(job.root, "spec", "podFailurePolicy", "rules"):
        codes = {one.value for one in items(rule, "onExitCodes", "values") if isinstance(one, ScalarNode)}
        inside = text_at(rule, "onExitCodes", "operator") != "NotIn"
        if text_at(rule, "action") == "FailJob" and (code in codes) == inside:
            return dig(rule, "onExitCodes") is not None
    return False
