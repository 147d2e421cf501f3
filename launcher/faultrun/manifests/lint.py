"""Checking a manifest: every rule, by line, and what no rule looks at.

The rules are about faultrun and the platform it runs on. What Kubernetes asks of every manifest (schemas,
names, volumes, requests) is left to kubeconform and kube-linter.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import isfunction

from faultrun.manifests import (
    rules_ascend,
    rules_faultrun,
    rules_names,
    rules_nodes,
    rules_policy,
    rules_stop,
)
from faultrun.manifests.finding import LintFinding
from faultrun.manifests.lint_input import LintInput, LintSettings
from faultrun.text.patch import MalformedText
from faultrun.text.yaml_reader import read

Rule = Callable[[LintInput], Iterator[LintFinding]]


class NotAManifest(MalformedText):
    """The text is no Kubernetes manifest; ``line`` is 0 where no line is at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The findings in the order of their lines, and the kinds that no rule looks at."""

    findings: tuple[LintFinding, ...]
    unchecked: tuple[str, ...]


RULES: tuple[Rule, ...] = tuple(
    rule
    for module in (rules_stop, rules_names, rules_ascend, rules_policy, rules_faultrun, rules_nodes)
    for name, rule in vars(module).items()
    if isfunction(rule) and rule.__module__ == module.__name__ and not name.startswith("_")
)
"""Every public function of the modules of rules, in their order."""


def lint(text: str, settings: LintSettings) -> Checked:
    """Check every rule. NotAManifest if there is nothing to check."""
    try:
        roots = read(text).roots
    except MalformedText as error:
        hint = " (a Helm template must be rendered first)" if "{{" in text else ""
        raise NotAManifest(f"it is not YAML: {error.because}{hint}", error.line) from None
    if not (page := LintInput(roots=roots, settings=settings)).objects:
        line = page.documents[0].line if page.documents else 1
        raise NotAManifest("it holds no object with apiVersion and kind", line)
    found = sorted((one for rule in RULES for one in rule(page)), key=lambda one: one.line)
    return Checked(findings=tuple(found), unchecked=page.unchecked)
