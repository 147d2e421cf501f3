"""Rules about values as such: keys given twice, strings that YAML takes for something else, names."""

import re
from collections.abc import Iterator

from faultrun.manifests.edits import bare, in_quotes
from faultrun.manifests.finding import LintFinding, found
from faultrun.manifests.lint_input import LintInput
from faultrun.manifests.workload import WorkloadKind
from faultrun.model.edit import ScalarKind
from faultrun.text.yaml_tree import MappingNode, Node, ScalarNode, dig, entries, items, scalar, text_at, walk

_TYPED = {
    ScalarKind.STR: "a string",
    ScalarKind.BOOL: "a boolean",
    ScalarKind.INT: "a whole number",
    ScalarKind.FLOAT: "a number",
    ScalarKind.NULL: "nothing",
}
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?(?!$)" + _LABEL_VALUE.pattern)
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_CONTAINER_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_COUNTS = {
    WorkloadKind.VCJOB: (("spec", "minAvailable"), ("spec", "maxRetry")),
    WorkloadKind.ASCENDJOB: (("spec", "runPolicy", "schedulingPolicy", "minAvailable"),),
    WorkloadKind.JOBSET: (("spec", "failurePolicy", "maxRestarts"),),
    WorkloadKind.JOB: (("spec", "parallelism"), ("spec", "completions"), ("spec", "backoffLimit")),
}


def documents_are_objects(page: LintInput) -> Iterator[LintFinding]:
    """A document without ``apiVersion`` and ``kind``."""
    for node in page.documents:
        if not (text_at(node, "apiVersion") and text_at(node, "kind")):
            yield found("not-an-object", node)


def keys_once(page: LintInput) -> Iterator[LintFinding]:
    """A key that is there twice: one of the two is silently lost, or the API server refuses both."""
    for root in page.objects:
        for node in walk(root):
            for first, again in node.doubles if isinstance(node, MappingNode) else ():
                yield found("duplicate-key", again, key=again.value, line=first.line)


def strings_are_strings(page: LintInput) -> Iterator[LintFinding]:
    """Labels, selectors, variables, arguments and config data that YAML takes for something else."""
    for what, _, value in (*_string_entries(page), *_string_items(page)):
        if not isinstance(value, ScalarNode):
            kind = "a mapping" if isinstance(value, MappingNode) else "a list"
            yield found("string-value/structure", value, what=what, kind=kind)
        elif value.go_kind not in {ScalarKind.STR, ScalarKind.NULL}:
            kind = _TYPED[value.go_kind]
            yield found("string-value", value, in_quotes(value), what=what, kind=kind, value=value.value)


def labels_are_valid(page: LintInput) -> Iterator[LintFinding]:
    """Label keys and values that the API server refuses."""
    for what, key, value in _string_entries(page):
        if not what.startswith("label"):
            continue
        if not _LABEL_KEY.fullmatch(key.value):
            yield found("label-value/name", key, name=key.value)
        if isinstance(value, ScalarNode) and not _LABEL_VALUE.fullmatch(value.value):
            yield found("label-value", value, what=what, value=value.value)


def names_are_valid(page: LintInput) -> Iterator[LintFinding]:
    """Names of objects and containers that the API server refuses."""
    names = [(_OBJECT_NAME, one.name) for one in (*page.workloads, *page.config_maps)]
    names += [(_CONTAINER_NAME, scalar(one.node, "name")) for one in page.containers]
    for pattern, name in names:
        if name is not None and not pattern.fullmatch(name.value) and not _is_to_be_filled(name):
            like = re.sub(r"[^a-z0-9]+", "-", name.value.lower()).strip("-") or "train"
            yield found("name", name, name=name.value, like=like)


def counts_are_numbers(page: LintInput) -> Iterator[LintFinding]:
    """Whole numbers written as strings, or not whole."""
    for name, value in _counts(page):
        if value is None or value.go_kind is ScalarKind.INT or _is_to_be_filled(value):
            continue
        whole = value.number is not None
        wording = "whole-number" if whole else "whole-number/fraction"
        patch = bare(value) if whole else None
        yield found(wording, value, patch, name=name, kind=_TYPED[value.go_kind], value=value.value)


def _string_entries(page: LintInput) -> Iterator[tuple[str, ScalarNode, Node]]:
    """Every entry of a mapping of strings: what it is, its key and its value."""
    places: list[tuple[str, Node, tuple[str, ...]]] = []
    for root in (*page.objects, *(pod.root for pod in page.pods if pod.root is not pod.job.root)):
        places += [("label", root, ("metadata", "labels")), ("annotation", root, ("metadata", "annotations"))]
    places += [("config data", one.root, ("data",)) for one in page.config_maps]
    places += [("label", job.root, ("spec", "selector", "matchLabels")) for job in page.workloads]
    places += [("node selector", pod.spec, ("nodeSelector",)) for pod in page.pods]
    for word, node, path in places:
        for key, value in entries(node, *path):
            yield f"{word} {key.value}", key, value


def _string_items(page: LintInput) -> Iterator[tuple[str, ScalarNode, Node]]:
    """The values of variables, and the words of commands."""
    for container in page.containers:
        for entry in container.variables:
            name, value = scalar(entry, "name"), dig(entry, "value")
            if name is not None and value is not None:
                yield f"variable {name.value}", name, value
        for part in ("command", "args"):
            for word in items(container.node, part):
                if isinstance(word, ScalarNode):
                    yield f"a word of {part}", word, word


def _counts(page: LintInput) -> Iterator[tuple[str, ScalarNode | None]]:
    for job in page.workloads:
        for path in _COUNTS.get(job.kind, ()):
            yield path[-1], scalar(job.root, *path)
    for pod in page.pods:
        yield "replicas", pod.replicas
        yield "terminationGracePeriodSeconds", pod.grace
    for container in page.containers:
        for port in items(container.node, "ports"):
            yield "containerPort", scalar(port, "containerPort")


def _is_to_be_filled(value: ScalarNode) -> bool:
    """Whether another tool puts the value in later, as envsubst and Helm do."""
    return "$" in value.value or "{{" in value.value
