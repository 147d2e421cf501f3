"""Rules about runs of several nodes: enough pods, names that stay, an etcd that all of them reach."""

from collections.abc import Iterator
from math import prod

from faultrun.manifests.finding import LintFinding, found
from faultrun.manifests.lint_input import FaultrunCall, LintInput
from faultrun.manifests.workload import WorkloadKind, is_object
from faultrun.text.yaml_tree import MappingNode, Node, dig, mapping, scalar, text_at

_GANGS = frozenset({WorkloadKind.JOB, WorkloadKind.JOBSET, WorkloadKind.VCJOB})
_LOOPBACK = ("localhost", "127.", "::1")


def every_node_has_a_pod(page: LintInput) -> Iterator[LintFinding]:
    """There must be as many pods as nodes, or more; and more pods than one only for several nodes."""
    for call in page.calls:
        pod, nodes = call.container.pod, call.asked.nodes
        if pod.job.kind not in _GANGS or None in (numbers := [one.number for one in pod.counts]):
            continue
        pods = prod(number for number in numbers if number is not None)
        where: Node = next((one for one in pod.counts if one.number != 1), call.where)
        least = call.asked.min_nodes or nodes
        if least is not None and pods < least:
            yield found("nodes-pods", where, nodes=least, pods=pods)
        elif pods > 1 and (nodes == 1 or (nodes is None and not pod.job.on_ascend)):
            yield found("nodes-pods/alone", where, pods=pods)


def all_pods_complete_together(page: LintInput) -> Iterator[LintFinding]:
    """A Job that starts fewer pods at once than it wants to complete starts the rest after the run."""
    for call in _several(page):
        pod = call.container.pod
        at_once, wanted = scalar(pod.owner, "parallelism"), scalar(pod.owner, "completions")
        if wanted is not None and at_once is not None and wanted.number != at_once.number:
            yield found("nodes-pods/completions", wanted, pods=at_once.value, wanted=wanted.value)


def pods_keep_their_names(page: LintInput) -> Iterator[LintFinding]:
    """A node is known by its pod's name: one that is replaced must have it again."""
    for call in _several(page):
        pod = call.container.pod
        mode = scalar(pod.owner, "completionMode")
        if pod.job.kind is WorkloadKind.DEPLOYMENT:
            yield found("stable-name/deployment", pod.job.name or call.where)
        elif mode is not None and mode.value != "Indexed":
            yield found("stable-name", mode)
        elif mode is None and pod.job.kind is WorkloadKind.JOB:
            yield found("stable-name", pod.job.name or call.where)


def names_of_pods_are_known(page: LintInput) -> Iterator[LintFinding]:
    """The host that all nodes look for is a pod of this job: something must make its name known."""
    for call in _several(page):
        pod, host = call.container.pod, _of_this_job(call)
        if host is None:
            continue
        plugins = mapping(pod.job.root, "spec", "plugins")
        named = scalar(pod.job.root, "spec", "network", "enableDNSHostnames")
        if pod.job.kind is WorkloadKind.VCJOB:
            if dig(plugins, "svc") is None:
                yield found("headless-service/volcano", plugins or call.where, host=host)
        elif pod.job.kind is WorkloadKind.JOBSET:
            if named is not None and named.value == "false":
                yield found("headless-service/jobset", named, host=host)
        elif pod.job.kind is WorkloadKind.JOB:
            yield from _served(page, call, host)


def etcd_is_one_for_all(page: LintInput) -> Iterator[LintFinding]:
    """Endpoints that each pod takes for its own, or of so many members that one of them is of no use."""
    for call in _several(page):
        for host in (*(call.asked.etcd or ()), *filter(None, (call.asked.leader,))):
            if host.startswith(_LOOPBACK):
                yield found("etcd-endpoint", call.where, host=host)
        count = len(call.asked.etcd or ())
        if call.asked.etcd == ():
            yield found("etcd-endpoint/none", call.where)
        elif count and count % 2 == 0:
            yield found("etcd-endpoint/even", call.where, count=count, fewer=count - 1)


def period_is_longer_than_the_lease(page: LintInput) -> Iterator[LintFinding]:
    """A pod that is killed while it saves cannot tell the others: they wait for the end of its lease."""
    for call in _several(page):
        pod, lease_s = call.container.pod, call.asked.lease_s
        if pod.grace_s is not None and lease_s is not None and 0 < pod.grace_s <= lease_s:
            yield found("lease", pod.grace or call.where, grace_s=pod.grace_s, lease_s=lease_s)


def one_supervisor_a_pod(page: LintInput) -> Iterator[LintFinding]:
    """Two supervisors of one run in one pod have one name."""
    seen: set[int] = set()
    for call in _several(page):
        if id(call.container.pod.spec) in seen:
            yield found("one-supervisor", call.where, container=call.container.name)
        seen.add(id(call.container.pod.spec))


def _several(page: LintInput) -> Iterator[FaultrunCall]:
    return (call for call in page.calls if call.asked.nodes is not None and call.asked.nodes > 1)


def _of_this_job(call: FaultrunCall) -> str | None:
    """The host that all look for, if its name is one that this job gives its pods: POD.SUBDOMAIN."""
    pod = call.container.pod
    for host in filter(None, (call.asked.leader, *(call.asked.etcd or ()))):
        first, _, rest = host.partition(".")
        if rest and pod.job.named and first.startswith(f"{pod.job.named}-"):
            return host
    return None


def _served(page: LintInput, call: FaultrunCall, host: str) -> Iterator[LintFinding]:
    """A Job's pods have names once they have a subdomain, and a headless service of that name."""
    pod = call.container.pod
    subdomain = host.split(".")[1]
    if text_at(pod.spec, "subdomain") != subdomain:
        where = scalar(pod.spec, "subdomain") or call.where
        yield found("headless-service", where, host=host, subdomain=subdomain)
    services = (one for one in page.objects if is_object(one, "v1", "Service"))
    service = next((one for one in services if text_at(one, "metadata", "name") == subdomain), None)
    if service is None:
        yield found("headless-service/missing", call.where, host=host, subdomain=subdomain)
        return
    yield from _headless(service)


def _headless(service: MappingNode) -> Iterator[LintFinding]:
    spec = mapping(service, "spec")
    for name, wanted, wording in (
        ("clusterIP", "None", "headless-service/address"),
        ("publishNotReadyAddresses", "true", "headless-service/ready"),
    ):
        if spec is None or ((written := scalar(spec, name)) is not None and written.value == wanted):
            continue
        yield found(wording, written or scalar(service, "metadata", "name") or service)
