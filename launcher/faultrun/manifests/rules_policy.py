"""Rules about what happens after an end: restart policies, exit codes, and the platform's switches.

The exit codes of faultrun that a restart cannot help are 64, 65, 78 and 93; Volcano's rules are those of its
admission webhook, the switches those of the Ascend documents.
"""

from collections.abc import Iterator

from faultrun.manifests.edits import replaced
from faultrun.manifests.finding import LintFinding, found
from faultrun.manifests.lint_input import LintInput
from faultrun.manifests.workload import Workload, WorkloadKind
from faultrun.text.yaml_tree import Node, ScalarNode, dig, items, mapping, scalar, text_at

_IN_PLACE = frozenset({"OnFailure", "Always"})
_FINAL = "93"
_RECOVER_STRATEGIES = ("retry", "recover", "recover-in-place", "elastic-training", "dump", "exit")
_STRATEGIES = ("ignore", "graceExit", "forceExit", "hotSwitch")
_SWITCHES = ("pod-rescheduling", "process-recover-enable")
_MEANT_ON = frozenset({"on", "true", "yes", "enable", "enabled", "1"})
_RETRIES = "fault-retry-times"
_MOST_RETRIES = 100


def job_restarts_its_pods(page: LintInput) -> Iterator[LintFinding]:
    """A Job's pods have restartPolicy Never or OnFailure; a podFailurePolicy wants Never."""
    for pod in page.pods:
        written = pod.restart_policy
        fails = dig(pod.job.root, "spec", "podFailurePolicy") is not None
        allowed = {"Never"} if fails else {"Never", "OnFailure"}
        if pod.job.kind is not WorkloadKind.JOB or (written is not None and written.value in allowed):
            continue
        said = written.value if written else "not set, which makes it Always"
        patch = replaced(written, "Never") if written else None
        where = " with a podFailurePolicy" if fails else ""
        yield found("restart-policy", written or pod.spec, patch, said=said, where=where)


def policies_are_accepted(page: LintInput) -> Iterator[LintFinding]:
    """Volcano's policies: event or exit code, not 0, not both, and an exit code that anybody gets to see."""
    for policy, in_place in (one for job in page.workloads for one in _policies(job)):
        events, code = dig(policy, "event") or dig(policy, "events"), scalar(policy, "exitCode")
        if (events is None) == (code is None):
            yield found("policy/both" if code else "policy/neither", policy)
        elif code is not None and code.number == 0:
            yield found("policy/zero", code)
        elif code is not None and in_place is not None:
            patch = replaced(in_place, "Never")
            yield found("policy", code, patch, code=code.value, in_place=in_place.value)


def final_exit_codes_are_final(page: LintInput) -> Iterator[LintFinding]:
    """Exit code 93 of faultrun means that a restart cannot help; the manifest should hear it."""
    for job in page.workloads:
        runs = [pod for pod in job.pods if any(one.faultrun is not None for one in pod.containers)]
        if runs and job.kind is WorkloadKind.JOB and job.name is not None and not _fails_on(job, _FINAL):
            yield found("exit-codes", job.name, job=job.shown, code=_FINAL)
        for pod in runs if job.kind in {WorkloadKind.VCJOB, WorkloadKind.ASCENDJOB} else ():
            written = _in_place(pod.restart_policy)
            if written is not None:
                patch = replaced(written, "Never")
                yield found("exit-codes/in-place", written, patch, policy=written.value, code=_FINAL)


def failing_codes_are_in_order(page: LintInput) -> Iterator[LintFinding]:
    """The exit codes of a podFailurePolicy: ascending, each once, and 0 only behind NotIn."""
    for rule in (rule for job in page.workloads for rule in _failure_rules(job)):
        codes = [one for one in items(rule, "onExitCodes", "values") if isinstance(one, ScalarNode)]
        numbers = [one.number for one in codes if one.number is not None]
        zero = 0 in numbers and text_at(rule, "onExitCodes", "operator") == "In"
        wanted = sorted(set(numbers) - ({0} if zero else set()))
        if numbers != wanted:
            yield found("exit-codes/zero" if zero else "exit-codes/order", codes[0], wanted=wanted)


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


def _failure_rules(job: Workload) -> Iterator[Node]:
    """The rules of every podFailurePolicy, a JobSet's jobs included."""
    roots: list[Node | None] = [job.root]
    if job.kind is WorkloadKind.JOBSET:
        roots = [mapping(one, "template") for one in items(job.root, "spec", "replicatedJobs")]
    for root in roots:
        yield from items(root, "spec", "podFailurePolicy", "rules")


def _fails_on(job: Workload, code: str) -> bool:
    for rule in _failure_rules(job):
        codes = {one.value for one in items(rule, "onExitCodes", "values") if isinstance(one, ScalarNode)}
        inside = text_at(rule, "onExitCodes", "operator") != "NotIn"
        if text_at(rule, "action") == "FailJob" and (code in codes) == inside:
            return dig(rule, "onExitCodes") is not None
    return False
