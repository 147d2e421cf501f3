"""Checking a manifest: every rule, by line; what no rule looks at; and what ``--fix`` may change.

The rules are about faultrun and the platform it runs on. What Kubernetes asks of every manifest (schemas,
names, volumes, requests) is left to kubeconform and kube-linter.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
from faultrun.text.patch import MalformedText, Patch, patched
from faultrun.text.yaml_reader import read

Rule = Callable[[LintInput], Iterator[LintFinding]]

_ROUNDS = 20


class NotAManifest(MalformedText):
    """The text is no Kubernetes manifest; ``line`` is 0 where no line is at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The findings in the order of their lines, and the kinds that no rule looks at."""

    findings: tuple[LintFinding, ...]
    unchecked: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A text after ``--fix``: what was mended, with the lines of the old text, and what is left."""

    text: str
    mended: tuple[LintFinding, ...]
    left: Checked


RULES: tuple[Rule, ...] = tuple(
    rule
    for module in (rules_stop, rules_names, rules_ascend, rules_policy, rules_faultrun, rules_nodes)
    for name, rule in vars(module).items()
    if isfunction(rule) and rule.__module__ == module.__name__ and not name.startswith("_")
)
"""Every public function of the modules of rules, in their order."""


def lint(text: str, settings: LintSettings) -> Checked:
    """Check every rule. NotAManifest if there is nothing to check.

    Patches are left out where a value is shared by an alias: it would change in two places.
    """
    try:
        stream = read(text)
    except MalformedText as error:
        hint = " (a Helm template must be rendered first)" if "{{" in text else ""
        raise NotAManifest(f"it is not YAML: {error.because}{hint}", error.line) from None
    if not (page := LintInput(text=text, roots=stream.roots, settings=settings)).objects:
        line = page.documents[0].line if page.documents else 1
        raise NotAManifest("it holds no object with apiVersion and kind", line)
    found = sorted((one for rule in RULES for one in rule(page)), key=lambda one: one.line)
    findings = tuple(replace(one, patches=()) if stream.aliases else one for one in found)
    return Checked(findings=findings, unchecked=page.unchecked)


def mend(text: str, settings: LintSettings) -> Mended:
    """Apply patches until none is left.

    A round that makes the text unreadable, or leaves what it should mend, is not taken.
    """
    mended: list[LintFinding] = []
    given_up: set[tuple[str, str]] = set()
    left = lint(text, settings)
    for _ in range(_ROUNDS):
        chosen = _apart([one for one in left.findings if one.patches and _identity(one) not in given_up])
        if not chosen:
            break
        candidate = patched(text, [patch for one in chosen for patch in one.patches])
        remaining = _checked(candidate, settings)
        wanted = {_identity(one) for one in chosen}
        failed = wanted & {_identity(one) for one in remaining.findings} if remaining else wanted
        if remaining is None or failed:
            given_up |= failed
            continue
        mended += chosen
        text, left = candidate, remaining
    return Mended(text=text, mended=tuple(mended), left=left)


def _checked(text: str, settings: LintSettings) -> Checked | None:
    try:
        return lint(text, settings)
    except NotAManifest:
        return None


def _identity(finding: LintFinding) -> tuple[str, str]:
    """What stays the same of a finding when lines above it are changed."""
    return finding.rule, finding.what


def _apart(findings: list[LintFinding]) -> list[LintFinding]:
    """Findings whose patches do not touch one another; the others have their turn in the next round."""
    chosen: list[LintFinding] = []
    taken: list[Patch] = []
    for finding in findings:
        own = finding.patches
        if all(patch.end < other.start or other.end < patch.start for patch in own for other in taken):
            chosen.append(finding)
            taken += own
    return chosen
