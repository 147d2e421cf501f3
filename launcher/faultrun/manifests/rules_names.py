"""Rules about names that must agree: config maps and their job, labels, gang size, selectors.

Sources: the comments of the platform's own samples (rings-config-, fault-config- and reset-config- cannot be
changed, the rest is the job's name) and the device plug-in, which watches only ``reset: "true"``.
"""

import json
from collections.abc import Iterator

from faultrun.manifests.edits import after_line, first_entry, replaced
from faultrun.manifests.finding import Finding
from faultrun.manifests.page import Page
from faultrun.manifests.platform_maps import PlatformMap, platform_map, platform_maps
from faultrun.manifests.workload import ASCEND_LABEL, ConfigMap, Kind
from faultrun.text.patch import Patch
from faultrun.text.yaml_tree import ScalarNode, entries, items, mapping, scalar, text_at

_JOBS = frozenset({Kind.VCJOB, Kind.ASCENDJOB, Kind.DEPLOYMENT})
_JOB_NAME_VARIABLE = "mindx-dls-test"


def config_maps_are_named_after_the_job(page: Page) -> Iterator[Finding]:
    """``rings-config-JOB`` and the others, where they are defined and where a volume names them."""
    jobs = [
        one for one in page.manifest.workloads if one.kind in _JOBS and one.on_ascend and one.name is not None
    ]
    names = [job.name.value for job in jobs if job.name is not None]
    for config_map, platform in platform_maps(page):
        name = config_map.name
        if name is not None and names and name.value.removeprefix(platform.prefix) not in names:
            yield _misnamed(name, platform, names)
    for job in jobs:
        own = job.name.value if job.name is not None else ""
        for volume in (volume for pod in job.pods for volume in items(pod.spec, "volumes")):
            name = scalar(volume, "configMap", "name")
            wanted = platform_map(name.value) if name is not None else None
            if name is not None and wanted is not None and name.value != wanted.prefix + own:
                yield _misnamed(name, wanted, [own])


def config_maps_share_the_namespace(page: Page) -> Iterator[Finding]:
    """A pod can mount only what lies in its own namespace."""
    for config_map, platform in platform_maps(page):
        name = config_map.name
        for job in page.manifest.workloads:
            if name is None or job.name is None or name.value != platform.prefix + job.name.value:
                continue
            if config_map.namespace and job.namespace and config_map.namespace != job.namespace:
                where = scalar(config_map.root, "metadata", "namespace")
                assert where is not None
                yield Finding(
                    line=where.line,
                    rule="config-map-namespace",
                    what=f"{name.value} is in namespace {where.value}, {job.shown} in {job.namespace}",
                    why="a pod mounts config maps of its own namespace only, and waits for this one for ever",
                    fix=f"write {job.namespace}",
                    patches=(replaced(where, job.namespace),),
                )


def config_maps_hold_their_key(page: Page) -> Iterator[Finding]:
    """The file that the platform will write must be there from the start, and be JSON."""
    for config_map, platform in platform_maps(page):
        name = config_map.name
        value = scalar(config_map.root, "data", platform.key)
        if value is None and name is not None:
            yield Finding(
                line=name.line,
                rule="config-map-data",
                what=f"{name.value} has no {platform.key}",
                why="the platform writes to that key, and whoever reads the mounted file finds none",
                fix=f'{platform.key}: \'{{"status":"initializing"}}\'',
            )
        elif value is not None and not _is_object(value.value):
            yield Finding(
                line=value.line,
                rule="config-map-data",
                what=f"{platform.key} is not a JSON object",
                why="the platform and the readers of the mounted file parse it",
                fix='{"status":"initializing"}',
            )


def reset_config_is_watched(page: Page) -> Iterator[Finding]:
    """The device plug-in watches only config maps that carry ``reset: "true"``."""
    for config_map, platform in platform_maps(page):
        name, labels = config_map.name, mapping(config_map.root, "metadata", "labels")
        label = scalar(labels, "reset")
        if (
            platform.prefix != "reset-config-"
            or name is None
            or (label is not None and label.value == "true")
        ):
            continue
        yield Finding(
            line=label.line if label else name.line,
            rule="reset-label",
            what=f'{name.value} lacks the label reset: "true"',
            why="the device plug-in watches only labelled config maps: reset.json is never written",
            fix='add reset: "true" to its labels',
            patches=_reset_label(page, config_map, label),
        )


def ring_labels_agree(page: Page) -> Iterator[Finding]:
    """The config map, the job and its pods name the same processor."""
    for job in page.manifest.workloads:
        own = scalar(job.labels, ASCEND_LABEL)
        if own is None or job.name is None:
            continue
        others = [scalar(pod.template, "metadata", "labels", ASCEND_LABEL) for pod in job.pods]
        for config_map, platform in platform_maps(page):
            if config_map.name is not None and config_map.name.value == platform.prefix + job.name.value:
                others.append(scalar(config_map.root, "metadata", "labels", ASCEND_LABEL))
        for other in others:
            if other is not None and other.value != own.value:
                yield Finding(
                    line=other.line,
                    rule="ring-controller",
                    what=f"{ASCEND_LABEL} is {other.value} here and {own.value} on {job.shown}",
                    why="the rank table is written only where the two are the same",
                    fix=f"write {own.value}",
                    patches=(replaced(other, own.value),),
                )


def gang_is_complete(page: Page) -> Iterator[Finding]:
    """The gang is all pods: with a larger minAvailable none starts, with a smaller one ranks are missing."""
    paths = {
        Kind.VCJOB: ("spec", "minAvailable"),
        Kind.ASCENDJOB: ("spec", "runPolicy", "schedulingPolicy", "minAvailable"),
    }
    for job in page.manifest.workloads:
        least = scalar(job.root, *paths[job.kind]) if job.kind in paths else None
        counts = [pod.replicas.number if pod.replicas else None for pod in job.pods]
        total = sum(count for count in counts if count is not None)
        if least is None or least.number is None or None in counts or least.number == total:
            continue
        elastic = not job.on_ascend or scalar(job.labels, "minReplicas") is not None
        if least.number < total and elastic:
            continue
        why = "a part of the job would start alone and wait for the rest"
        yield Finding(
            line=least.line,
            rule="min-available",
            what=f"minAvailable is {least.number}, and the replicas are {total}",
            why=why if least.number < total else "so many pods never come, and none is started",
            fix=f"write {total}",
            patches=(replaced(least, total),),
        )


def selector_finds_the_pods(page: Page) -> Iterator[Finding]:
    """A selector that does not match the labels of its own pods is refused."""
    for job in page.manifest.workloads:
        for key, wanted in entries(job.root, "spec", "selector", "matchLabels"):
            for pod in job.pods:
                label = scalar(pod.template, "metadata", "labels", key.value)
                if isinstance(wanted, ScalarNode) and (label is None or label.value != wanted.value):
                    yield Finding(
                        line=key.line,
                        rule="selector",
                        what=f"the pods have no label {key.value}: {wanted.value}",
                        why="the API server refuses a selector that does not match its own template",
                        fix="use the same label in both",
                        patches=(replaced(label, wanted.value),) if label else (),
                    )


def job_name_variable_is_the_jobs_name(page: Page) -> Iterator[Finding]:
    """The samples' variable ``mindx-dls-test`` is named after the job of the samples."""
    for job in page.manifest.workloads:
        if job.kind not in _JOBS or job.name is None or job.name.value == _JOB_NAME_VARIABLE:
            continue
        for container in job.containers:
            for entry in items(container.node, "env"):
                name = scalar(entry, "name")
                if name is None or name.value != _JOB_NAME_VARIABLE:
                    continue
                if text_at(entry, "valueFrom", "fieldRef", "fieldPath") == "metadata.name":
                    yield Finding(
                        line=name.line,
                        rule="job-name-variable",
                        what=f"the variable is still named {name.value}, and the job {job.name.value}",
                        why="the platform's documents want the variable to be named as the job is",
                        fix=f"name it {job.name.value}",
                        patches=(replaced(name, job.name.value),),
                    )


def _misnamed(name: ScalarNode, platform: PlatformMap, jobs: list[str]) -> Finding:
    wanted = platform.prefix + jobs[0]
    return Finding(
        line=name.line,
        rule="config-map-name",
        what=f"{name.value} belongs to no job here; the job is {' or '.join(jobs)}",
        why=f"the platform writes {platform.key} to {wanted}, and to no other name",
        fix=f"name it {wanted}",
        patches=(replaced(name, wanted),) if len(jobs) == 1 else (),
    )


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _reset_label(page: Page, config_map: ConfigMap, label: ScalarNode | None) -> tuple[Patch, ...]:
    entry = 'reset: "true"'
    name, labels = config_map.name, mapping(config_map.root, "metadata", "labels")
    if label is not None:
        return (Patch(start=label.start, end=label.end, new='"true"'),)
    if labels is not None and labels.entries:
        patch = first_entry(page.text, labels, entry)
        return (patch,) if patch else ()
    metadata = mapping(config_map.root, "metadata")
    if labels is not None or metadata is None or metadata.flow or metadata.key("labels") or name is None:
        return ()
    key = metadata.key("name")
    patch = after_line(page.text, name, key.column, f"labels:\n  {entry}") if key else None
    return (patch,) if patch else ()
