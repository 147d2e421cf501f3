"""Rules about single values: keys given twice, strings that YAML takes for something else, names."""

import re
from collections.abc import Iterator

from faultrun.manifests.edits import bare, in_quotes
from faultrun.manifests.finding import Finding
from faultrun.manifests.page import Page
from faultrun.manifests.workload import Kind, Manifest, Pod, Workload
from faultrun.model.edit import ScalarKind
from faultrun.text.yaml_tree import (
    MappingNode,
    Node,
    ScalarNode,
    dig,
    entries,
    items,
    scalar,
    walk,
)

_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_CONTAINER_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_TYPED = {
    ScalarKind.STR: "a string",
    ScalarKind.BOOL: "a boolean",
    ScalarKind.INT: "a whole number",
    ScalarKind.FLOAT: "a number",
    ScalarKind.NULL: "nothing",
}
_COUNTS = {
    Kind.VCJOB: (("spec", "minAvailable"), ("spec", "maxRetry")),
    Kind.ASCENDJOB: (("spec", "runPolicy", "schedulingPolicy", "minAvailable"),),
    Kind.JOBSET: (("spec", "failurePolicy", "maxRestarts"),),
    Kind.JOB: (("spec", "parallelism"), ("spec", "completions"), ("spec", "backoffLimit")),
}


def documents_are_objects(page: Page) -> Iterator[Finding]:
    """A document without ``apiVersion`` and ``kind``."""
    for node in page.manifest.stray:
        yield Finding(
            line=node.line,
            rule="not-an-object",
            what="this document has no apiVersion and kind",
            why="kubectl refuses it",
            fix="add both, or take the document out",
        )


def keys_once(page: Page) -> Iterator[Finding]:
    """A key that is there twice: one of the two is silently lost, or the API server refuses both."""
    for root in page.manifest.objects:
        for node in walk(root):
            for first, again in node.doubles if isinstance(node, MappingNode) else ():
                yield Finding(
                    line=again.line,
                    rule="duplicate-key",
                    what=f"{again.value} is already given in line {first.line}",
                    why="kubectl refuses it, and other readers take the last one",
                    fix="leave one of them",
                )


def strings_are_strings(page: Page) -> Iterator[Finding]:
    """Labels, selectors, variables, arguments and config data that YAML takes for something else."""
    for what, _, value in (*_string_entries(page.manifest), *_string_items(page.manifest)):
        if not isinstance(value, ScalarNode):
            yield Finding(
                line=value.line,
                rule="string-value",
                what=f"{what} is {'a mapping' if isinstance(value, MappingNode) else 'a list'}",
                why="the API server wants a string there",
                fix="write one string",
            )
        elif value.go_kind not in {ScalarKind.STR, ScalarKind.NULL}:
            yield Finding(
                line=value.line,
                rule="string-value",
                what=f"{what} is {_TYPED[value.go_kind]}: {value.value}",
                why="the API server wants a string there",
                fix=f'write "{value.value}"',
                patches=(in_quotes(value),),
            )


def labels_are_valid(page: Page) -> Iterator[Finding]:
    """Label keys and values that the API server refuses."""
    why = "labels are at most 63 letters, digits, '-', '_' and '.', and begin and end with a letter or digit"
    for what, key, value in _string_entries(page.manifest):
        if not what.startswith("label"):
            continue
        if not _LABEL_KEY.fullmatch(key.value):
            yield Finding(
                line=key.line,
                rule="label-value",
                what=f"{key.value!r} cannot be the name of a label",
                why=why,
                fix="choose another name",
            )
        if isinstance(value, ScalarNode) and not _LABEL_VALUE.fullmatch(value.value):
            yield Finding(
                line=value.line,
                rule="label-value",
                what=f"{what} cannot be {value.value!r}",
                why=why,
                fix="choose another value, or make it an annotation",
            )


def names_are_valid(page: Page) -> Iterator[Finding]:
    """Names of objects and containers that the API server refuses."""
    jobs = (one.name for one in page.manifest.workloads)
    maps = (one.name for one in page.manifest.config_maps)
    containers = (
        scalar(container.node, "name")
        for workload in page.manifest.workloads
        for container in workload.containers
    )
    for pattern, names in ((_OBJECT_NAME, jobs), (_OBJECT_NAME, maps), (_CONTAINER_NAME, containers)):
        for name in names:
            if name is not None and not pattern.fullmatch(name.value) and not _to_be_filled(name):
                yield Finding(
                    line=name.line,
                    rule="name",
                    what=f"nothing can be named {name.value!r}",
                    why="names are made of a-z, 0-9 and '-', and begin and end with a letter or digit",
                    fix=f"for example {_as_name(name.value)}",
                )


def counts_are_numbers(page: Page) -> Iterator[Finding]:
    """Whole numbers written as strings, or not whole."""
    for workload in page.manifest.workloads:
        for name, value in _counts(workload):
            if value.go_kind is ScalarKind.INT or _to_be_filled(value):
                continue
            whole = value.number is not None
            yield Finding(
                line=value.line,
                rule="whole-number",
                what=f"{name} is {_TYPED[value.go_kind]}: {value.value}",
                why="the API server wants a whole number there",
                fix=f"write {value.value} without quotes" if whole else "write a whole number",
                patches=(bare(value),) if whole else (),
            )


def _string_entries(manifest: Manifest) -> Iterator[tuple[str, ScalarNode, Node]]:
    """Every entry of a mapping of strings: what it is, its key and its value."""
    for root in manifest.objects:
        for part, word in (("labels", "label"), ("annotations", "annotation")):
            yield from _entries(word, root, "metadata", part)
    for config_map in manifest.config_maps:
        yield from _entries("config data", config_map.root, "data")
    for workload in manifest.workloads:
        yield from _entries("label", workload.root, "spec", "selector", "matchLabels")
        for pod in workload.pods:
            if pod.template is not workload.root:
                yield from _entries("label", pod.template, "metadata", "labels")
                yield from _entries("annotation", pod.template, "metadata", "annotations")
            yield from _entries("node selector", pod.spec, "nodeSelector")


def _entries(word: str, node: Node, *path: str) -> Iterator[tuple[str, ScalarNode, Node]]:
    for key, value in entries(node, *path):
        yield f"{word} {key.value}", key, value


def _string_items(manifest: Manifest) -> Iterator[tuple[str, ScalarNode, Node]]:
    """The values of variables, and the words of commands."""
    for workload in manifest.workloads:
        for container in workload.containers:
            for entry in items(container.node, "env"):
                name, value = scalar(entry, "name"), dig(entry, "value")
                if name is not None and value is not None:
                    yield f"variable {name.value}", name, value
            for part in ("command", "args"):
                for word in items(container.node, part):
                    if isinstance(word, ScalarNode):
                        yield f"a word of {part}", word, word


def _counts(workload: Workload) -> Iterator[tuple[str, ScalarNode]]:
    for path in _COUNTS.get(workload.kind, ()):
        found = scalar(workload.root, *path)
        if found is not None:
            yield path[-1], found
    for pod in workload.pods:
        yield from _pod_counts(pod)


def _pod_counts(pod: Pod) -> Iterator[tuple[str, ScalarNode]]:
    if pod.replicas is not None:
        yield "replicas", pod.replicas
    if pod.grace is not None:
        yield "terminationGracePeriodSeconds", pod.grace
    for container in pod.containers:
        for port in items(container.node, "ports"):
            found = scalar(port, "containerPort")
            if found is not None:
                yield "containerPort", found


def _to_be_filled(value: ScalarNode) -> bool:
    """Whether another tool puts the value in later, as envsubst and Helm do."""
    return "$" in value.value or "{{" in value.value


def _as_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "train"
