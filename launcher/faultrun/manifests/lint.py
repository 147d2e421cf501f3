"""Checking a manifest: every rule, by line; and what ``--fix`` may change."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from inspect import isfunction

from faultrun.manifests import (
    rules_faultrun,
    rules_names,
    rules_nodes,
    rules_pod,
    rules_policy,
    rules_stop,
    rules_values,
)
from faultrun.manifests.finding import LintFinding
from faultrun.manifests.lint_input import LintInput, LintSettings
from faultrun.text.patch import MalformedText, Patch, patched
from faultrun.text.yaml_reader import read

Rule = Callable[[LintInput], Iterator[LintFinding]]

_ROUNDS = 20
_SYNTAX = frozenset({"not-an-object", "duplicate-key", "string-value", "whole-number"})


class NotAManifest(MalformedText):
    """The text is no Kubernetes manifest; ``line`` is 0 where no line is at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A text after ``--fix``: what was mended, with the lines of the old text, and what is left."""

    text: str
    mended: tuple[LintFinding, ...]
    left: tuple[LintFinding, ...]


RULES: tuple[Rule, ...] = tuple(
    rule
    for module in (
        rules_values,
        rules_stop,
        rules_names,
        rules_pod,
        rules_policy,
        rules_faultrun,
        rules_nodes,
    )
    for name, rule in vars(module).items()
    if isfunction(rule) and rule.__module__ == module.__name__ and not name.startswith("_")
)
"""Every public function of the modules of rules, in their order."""


def lint(text: str, settings: LintSettings) -> tuple[LintFinding, ...]:
    """Check every rule; findings in the order of their lines. NotAManifest if there is nothing to check.

    Patches are left out where a value is shared by an alias: it would change in two places.
    """
    try:
        stream = read(text)
    except MalformedText as error:
        hint = " (a Helm template must be rendered first)" if "{{" in text else ""
        raise NotAManifest(f"it is not YAML: {error.because}{hint}", error.line) from None
    page = LintInput(text=text, roots=stream.roots, settings=settings)
    if not page.objects:
        line = page.documents[0].line if page.documents else 1
        raise NotAManifest("it holds no object with apiVersion and kind", line)
    found = sorted((one for rule in RULES for one in rule(page)), key=lambda one: one.line)
    return tuple(replace(one, patches=()) if stream.aliases else one for one in found)


def mend(text: str, settings: LintSettings) -> Mended:
    """Apply patches until none is left.

    A round that breaks something, or leaves what it should mend, is not taken.
    """
    mended: list[LintFinding] = []
    given_up: set[tuple[str, str]] = set()
    left = lint(text, settings)
    for _ in range(_ROUNDS):
        chosen = _apart([one for one in left if one.patches and _identity(one) not in given_up])
        if not chosen:
            break
        candidate = patched(text, [patch for one in chosen for patch in one.patches])
        remaining = _checked(candidate, settings)
        failed = {_identity(one) for one in chosen} & {_identity(one) for one in remaining or ()}
        if remaining is None or failed or _broken(remaining) > _broken(left):
            given_up |= failed or {_identity(one) for one in chosen}
            continue
        mended += chosen
        text, left = candidate, remaining
    return Mended(text=text, mended=tuple(mended), left=left)


def _checked(text: str, settings: LintSettings) -> tuple[LintFinding, ...] | None:
    try:
        return lint(text, settings)
    except NotAManifest:
        return None


def _identity(finding: LintFinding) -> tuple[str, str]:
    """What stays the same of a finding when lines above it are changed."""
    return finding.rule, finding.what


def _broken(findings: tuple[LintFinding, ...]) -> int:
    """How much of the text is wrong in itself: patches must never add to that."""
    return sum(finding.rule in _SYNTAX for finding in findings)


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
