"""Rules about what must agree on Ascend: config maps, their job and its mounts, labels, gang size.

Sources: the comments of the platform's own samples (rings-config-, fault-config- and reset-config- cannot be
changed, the rest is the job's name) and the device plug-in, which watches only ``reset: "true"``.
"""

import json
from collections.abc import Iterator

from faultrun.manifests.finding import LintFinding, found
from faultrun.manifests.lint_input import LintInput
from faultrun.manifests.workload import ASCEND_LABEL, PlatformMap, WorkloadKind, platform_map
from faultrun.text.yaml_tree import ScalarNode, scalar, text_at

_JOBS = frozenset({WorkloadKind.VCJOB, WorkloadKind.ASCENDJOB, WorkloadKind.DEPLOYMENT})
_JOB_NAME_VARIABLE = "mindx-dls-test"
_LEAST = {
    WorkloadKind.VCJOB: ("spec", "minAvailable"),
    WorkloadKind.ASCENDJOB: ("spec", "runPolicy", "schedulingPolicy", "minAvailable"),
}


def config_maps_are_named_after_the_job(page: LintInput) -> Iterator[LintFinding]:
    """``rings-config-JOB`` and the others, where they are defined and where a volume names them."""
    jobs = [one for one in page.workloads if one.kind in _JOBS and one.on_ascend and one.name is not None]
    names = [job.named for job in jobs]
    for _, name, platform in page.platform_maps:
        if names and name.value.removeprefix(platform.prefix) not in names:
            yield _misnamed(name, platform, names)
    for job in jobs:
        for volume in (volume for pod in job.pods for volume in pod.volumes):
            name_or_none = scalar(volume, "configMap", "name")
            wanted = platform_map(name_or_none.value) if name_or_none else None
            if name_or_none and wanted and name_or_none.value != wanted.prefix + job.named:
                yield _misnamed(name_or_none, wanted, [job.named])


def config_maps_share_the_namespace(page: LintInput) -> Iterator[LintFinding]:
    """A pod can mount only what lies in its own namespace."""
    for config_map in page.config_maps:
        if (where := scalar(config_map.root, "metadata", "namespace")) is None or not where.value:
            continue
        for job in page.workloads:
            namespace = text_at(job.root, "metadata", "namespace")
            if config_map.is_of(job) and namespace not in {"", where.value}:
                said = {"map": config_map.named, "where": where.value, "job": job.shown}
                yield found("config-map-namespace", where, namespace=namespace, **said)


def config_maps_hold_their_key(page: LintInput) -> Iterator[LintFinding]:
    """The file that the platform will write must be there from the start, and be JSON."""
    for config_map, name, platform in page.platform_maps:
        if (value := scalar(config_map.root, "data", platform.key)) is None:
            yield found("config-map-data/missing", name, map=name.value, key=platform.key)
        elif not _is_object(value.value):
            yield found("config-map-data", value, key=platform.key)


def reset_config_is_watched(page: LintInput) -> Iterator[LintFinding]:
    """The device plug-in watches only config maps that carry ``reset: "true"``."""
    for config_map, name, platform in page.platform_maps:
        label = config_map.label("reset")
        if platform.prefix == "reset-config-" and (label is None or label.value != "true"):
            yield found("reset-label", label or name, map=name.value)


def platform_files_arrive(page: LintInput) -> Iterator[LintFinding]:
    """The platform's config maps: mounted at all, and in a way in which changes come through."""
    for pod in page.pods:
        mounts = [mount for container in pod.containers for mount in container.mounts]
        for volume in pod.volumes:
            name = scalar(volume, "configMap", "name")
            platform = platform_map(name.value) if name else None
            if name is None or platform is None:
                continue
            own = [mount for mount in mounts if text_at(mount, "name") == text_at(volume, "name")]
            said = {"map": name.value, "platform": platform}
            if not own:
                yield found("config-map-mount", name, **said)
            for sub_path in filter(None, (scalar(mount, "subPath") for mount in own)):
                yield found("sub-path", sub_path, **said)


def ring_labels_agree(page: LintInput) -> Iterator[LintFinding]:
    """The config map, the job and its pods name the same processor."""
    for job in page.workloads:
        if (own := job.label(ASCEND_LABEL)) is None or job.name is None:
            continue
        others = [pod.label(ASCEND_LABEL) for pod in job.pods]
        others += [one.label(ASCEND_LABEL) for one in page.config_maps if one.is_of(job)]
        for other in others:
            if other is not None and other.value != own.value:
                yield found("ring-controller", other, here=other.value, own=own.value, job=job.shown)


def gang_is_complete(page: LintInput) -> Iterator[LintFinding]:
    """The gang is all pods: with a larger minAvailable none starts, with a smaller one ranks are missing."""
    for job in page.workloads:
        least = scalar(job.root, *_LEAST[job.kind]) if job.kind in _LEAST else None
        counts = [pod.replicas.number if pod.replicas else None for pod in job.pods]
        total = sum(count for count in counts if count is not None)
        if least is None or least.number is None or None in counts or least.number == total:
            continue
        elastic = not job.on_ascend or job.label("minReplicas") is not None
        if least.number > total or not elastic:
            wording = "min-available/few" if least.number < total else "min-available"
            yield found(wording, least, least=least.number, total=total)


def job_name_variable_is_the_jobs_name(page: LintInput) -> Iterator[LintFinding]:
    """The samples' variable ``mindx-dls-test`` is named after the job of the samples."""
    for container in page.containers:
        job = container.pod.job
        if job.kind not in _JOBS or job.name is None or job.named == _JOB_NAME_VARIABLE:
            continue
        for entry in container.variables:
            name = scalar(entry, "name")
            field = text_at(entry, "valueFrom", "fieldRef", "fieldPath")
            if name is not None and name.value == _JOB_NAME_VARIABLE and field == "metadata.name":
                yield found("job-name-variable", name, name=name.value, job=job.named)


def _misnamed(name: ScalarNode, platform: PlatformMap, jobs: list[str]) -> LintFinding:
    wanted = platform.prefix + jobs[0]
    said = {"name": name.value, "jobs": " or ".join(jobs), "key": platform.key, "wanted": wanted}
    return found("config-map-name", name, **said)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
