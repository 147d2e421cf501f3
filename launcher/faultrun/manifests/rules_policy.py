"""Rules about what happens after an end: restart policies, exit codes, and the platform's switches.

The exit codes of faultrun that a restart cannot help are 64, 65, 78 and 93; Volcano's rules are those of its
admission webhook, the switches those of the Ascend documents.
"""

from collections.abc import Iterator

from faultrun.manifests.edits import replaced
from faultrun.manifests.finding import Finding
from faultrun.manifests.page import Page
from faultrun.manifests.workload import Kind, Workload
from faultrun.text.yaml_tree import Node, ScalarNode, dig, items, mapping, scalar, text_at

_IN_PLACE = frozenset({"OnFailure", "Always"})
_FINAL = "93"
_RECOVER_STRATEGIES = ("retry", "recover", "recover-in-place", "elastic-training", "dump", "exit")
_STRATEGIES = ("ignore", "graceExit", "forceExit", "hotSwitch")
_SWITCHES = ("pod-rescheduling", "process-recover-enable")
_MEANT_ON = frozenset({"on", "true", "yes", "enable", "enabled", "1"})
_RETRIES = "fault-retry-times"
_MOST_RETRIES = 100


def job_restarts_its_pods(page: Page) -> Iterator[Finding]:
    """A Job's pods have restartPolicy Never or OnFailure; a podFailurePolicy wants Never."""
    for job in page.manifest.workloads:
        if job.kind is not Kind.JOB:
            continue
        policy = dig(job.root, "spec", "podFailurePolicy")
        allowed = ("Never",) if policy is not None else ("Never", "OnFailure")
        for pod in job.pods:
            written = pod.restart_policy
            if written is None or written.value not in allowed:
                yield Finding(
                    line=written.line if written else pod.spec.line,
                    rule="restart-policy",
                    what=f"restartPolicy is {written.value if written else 'not set, which makes it Always'}",
                    why="the API server refuses that in a Job"
                    + (" with a podFailurePolicy" if policy is not None else ""),
                    fix="restartPolicy: Never",
                    patches=(replaced(written, "Never"),) if written else (),
                )


def policies_are_accepted(page: Page) -> Iterator[Finding]:
    """Volcano's policies: event or exit code, not 0, not both, and an exit code that anybody gets to see."""
    for job in page.manifest.workloads:
        for policy, in_place in _policies(job):
            events, code = dig(policy, "event") or dig(policy, "events"), scalar(policy, "exitCode")
            if (events is None) == (code is None):
                yield Finding(
                    line=policy.line,
                    rule="policy",
                    what="a policy has both event and exitCode"
                    if code
                    else "a policy has neither event nor exitCode",
                    why="Volcano's webhook refuses the job",
                    fix="one policy for each",
                )
            elif code is not None and code.number == 0:
                yield Finding(
                    line=code.line,
                    rule="policy",
                    what="a policy is for exitCode 0",
                    why="Volcano's webhook refuses the job",
                    fix="event: TaskCompleted",
                )
            elif code is not None and in_place is not None:
                yield Finding(
                    line=code.line,
                    rule="policy",
                    what=f"a policy is for exitCode {code.value}, and restartPolicy is {in_place.value}",
                    why="kubelet restarts the container in its pod, which does not fail: no policy is asked",
                    fix="restartPolicy: Never",
                    patches=(replaced(in_place, "Never"),),
                )


def final_exit_codes_are_final(page: Page) -> Iterator[Finding]:
    """Exit code 93 of faultrun means that a restart cannot help; the manifest should hear it."""
    for job in page.manifest.workloads:
        if not any(one.faultrun is not None for one in job.containers):
            continue
        if job.kind is Kind.JOB and job.name is not None and not _fails_on(job, _FINAL):
            yield Finding(
                line=job.name.line,
                rule="exit-codes",
                what=f"{job.shown} does not fail on faultrun's exit code {_FINAL}",
                why="a run that no restart can help is started again until backoffLimit is used up",
                fix="podFailurePolicy: FailJob onExitCodes In [64, 65, 78, 93], Ignore DisruptionTarget",
            )
        for pod in job.pods if job.kind in {Kind.VCJOB, Kind.ASCENDJOB} else ():
            written = pod.restart_policy
            trains = any(one.faultrun is not None for one in pod.containers)
            if trains and written is not None and written.value in _IN_PLACE:
                yield Finding(
                    line=written.line,
                    rule="exit-codes",
                    what=f"restartPolicy is {written.value}",
                    why=f"kubelet starts faultrun again whatever its exit code, {_FINAL} (do not) included",
                    fix="restartPolicy: Never",
                    patches=(replaced(written, "Never"),),
                )


def failing_codes_are_in_order(page: Page) -> Iterator[Finding]:
    """The exit codes of a podFailurePolicy: ascending, each once, and 0 only behind NotIn."""
    for rule in (
        rule for one in page.manifest.workloads for rules in _failure_rules(one) for rule in items(rules)
    ):
        codes = [one for one in items(rule, "onExitCodes", "values") if isinstance(one, ScalarNode)]
        numbers = [one.number for one in codes if one.number is not None]
        zero = 0 in numbers and text_at(rule, "onExitCodes", "operator") == "In"
        wanted = sorted(set(numbers) - ({0} if zero else set()))
        if numbers != wanted:
            yield Finding(
                line=codes[0].line,
                rule="exit-codes",
                what="exit code 0 is among them" if zero else "the exit codes are not in order, each once",
                why="the API server refuses it",
                fix=f"values: {wanted}",
            )


def switches_have_known_values(page: Page) -> Iterator[Finding]:
    """Labels and annotations that Ascend's components read: any other value counts as off or is dropped."""
    for job in page.manifest.workloads:
        for name in _SWITCHES:
            value = scalar(job.labels, name)
            if value is not None and value.value != "on" and value.value.lower() in _MEANT_ON:
                yield _unknown(value, name, ("on",))
        health = scalar(job.labels, "subHealthyStrategy")
        if health is not None and health.value not in _STRATEGIES:
            yield _unknown(health, "subHealthyStrategy", _STRATEGIES)
        retries = scalar(job.labels, _RETRIES)
        if retries is not None and not (retries.number is not None and 0 <= retries.number <= _MOST_RETRIES):
            yield _unknown(retries, _RETRIES, ("0", "...", str(_MOST_RETRIES)))
        strategy = scalar(job.root, "metadata", "annotations", "recover-strategy")
        words = strategy.value.split(",") if strategy else []
        if strategy is not None and any(word.strip() not in _RECOVER_STRATEGIES for word in words):
            yield _unknown(strategy, "recover-strategy", _RECOVER_STRATEGIES)


def _unknown(value: ScalarNode, name: str, known: tuple[str, ...]) -> Finding:
    return Finding(
        line=value.line,
        rule="switch",
        what=f"{name} is {value.value!r}",
        why="the platform takes a value that it does not know for off, or drops it",
        fix=f"one of {' '.join(known)}",
    )


def _policies(job: Workload) -> Iterator[tuple[Node, ScalarNode | None]]:
    """Volcano's policies, with the restart policy that hides exit codes from them, if all pods have one."""
    if job.kind is not Kind.VCJOB:
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


def _failure_rules(workload: Workload) -> Iterator[Node]:
    """The rules of every podFailurePolicy, a JobSet's jobs included."""
    roots: list[Node | None] = [workload.root]
    if workload.kind is Kind.JOBSET:
        roots = [mapping(one, "template") for one in items(workload.root, "spec", "replicatedJobs")]
    for root in roots:
        rules = dig(root, "spec", "podFailurePolicy", "rules")
        if rules is not None:
            yield rules


def _fails_on(job: Workload, code: str) -> bool:
    for rules in _failure_rules(job):
        for rule in items(rules):
            codes = {one.value for one in items(rule, "onExitCodes", "values") if isinstance(one, ScalarNode)}
            inside = text_at(rule, "onExitCodes", "operator") != "NotIn"
            if text_at(rule, "action") == "FailJob" and (code in codes) == inside:
                return dig(rule, "onExitCodes") is not None
    return False
