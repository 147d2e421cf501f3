"""Manifests to check: rendered ones, which are right, and one as the field writes them, which is not."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import kubernetes_validate

from faultrun.cli.manifests import read_requirements
from faultrun.manifests.finding import LintFinding
from faultrun.manifests.lint import lint
from faultrun.manifests.lint_input import LintSettings
from faultrun.manifests.render import GivenValue, ManifestTemplate, load, write
from support.places import DATA, ROOT

TEMPLATES = ROOT / "templates"
CLUSTER = LintSettings(reader=read_requirements)
KINDS = ("vcjob", "ascendjob", "job", "jobset")

FIELD = (DATA / "field_vcjob.yaml").read_text(encoding="utf-8")
"""A job as the field writes them: a shell, scripts, 900 seconds, no hook, no label on the reset-config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One block of a file of cases: what its head says, and its texts."""

    head: tuple[str, ...]
    texts: tuple[str, ...]


def cases(name: str) -> list[Case]:
    """Read ``tests/data/NAME``: a head behind ``####``, texts between ``<<<<``, ``====``, ``>>>>``."""
    content = (DATA / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^#### ([^\n]*)\n<<<<\n(.*?)\n>>>>$", content, re.DOTALL | re.MULTILINE)
    return [Case(head=tuple(head.split(" | ")), texts=tuple(body.split("\n====\n"))) for head, body in blocks]


def template(name: str) -> ManifestTemplate:
    """A packaged template by its name."""
    return load(next(path for path in TEMPLATES.iterdir() if path.stem == name))


def given(*settings: str) -> list[GivenValue]:
    """Values as ``--set`` gives them."""
    return [
        GivenValue(name=name, text=text, where="--set")
        for name, _, text in (one.partition("=") for one in settings)
    ]


@cache
def rendered(name: str, *settings: str) -> str:
    """What a template makes of an image and ``settings``."""
    image = () if name in {"slurm", "Dockerfile"} else ("image=registry.example/train:1.2",)
    return write(template(name), given(*image, *settings), read_requirements)


def findings(text: str, cluster: LintSettings = CLUSTER) -> list[LintFinding]:
    return list(lint(text, cluster).findings)


def rules(text: str, cluster: LintSettings = CLUSTER) -> list[str]:
    """The rules that a text breaks, by line."""
    return [finding.rule for finding in lint(text, cluster).findings]


def changed(text: str, old: str, new: str) -> str:
    """The text with the first ``old`` replaced, which must be there."""
    assert old in text, old
    return text.replace(old, new, 1)


def pod_templates(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Metadata and spec of every pod in it; a JobSet's jobs are validated on the way."""
    spec = document.get("spec", {})
    match document["kind"]:
        case "Job" if document["apiVersion"] == "batch/v1":
            templates = [spec["template"]]
        case "Job":
            templates = [task["template"] for task in spec["tasks"]]
        case "AscendJob":
            templates = [replica["template"] for replica in spec["replicaSpecs"].values()]
        case "JobSet":
            jobs = [one["template"] for one in spec["replicatedJobs"]]
            for job in jobs:
                whole = {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "metadata": {"name": "j"},
                    "spec": job["spec"],
                }
                kubernetes_validate.validate(whole, kubernetes_validate.latest_version(), strict=True)
            templates = [job["spec"]["template"] for job in jobs]
        case _:
            templates = []
    for one in templates:
        yield one["metadata"], one["spec"]
