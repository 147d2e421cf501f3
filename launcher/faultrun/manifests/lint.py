"""Checking a manifest: every rule, by line; and what ``--fix`` may change."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from faultrun.manifests import (
    rules_faultrun,
    rules_grace,
    rules_names,
    rules_pod,
    rules_policy,
    rules_signals,
    rules_values,
    rules_volumes,
)
from faultrun.manifests.finding import Finding
from faultrun.manifests.page import GRACE_OVER_TIME_S, Page, Reader, no_wishes
from faultrun.manifests.workload import Manifest, manifest_of
from faultrun.text.patch import MalformedText, Patch, patched
from faultrun.text.yaml_reader import read
from faultrun.text.yaml_tree import scalar

_GRACE_OVER_TIME = re.compile(r"""["']?grace-over-time["']?\s*:\s*["']?(-?\d{1,9})""")
_SHORTEST_S, _LONGEST_S = 2, 3600
_ROUNDS = 20
_SYNTAX = frozenset({"not-an-object", "duplicate-key", "string-value", "whole-number"})

RULES: tuple[Callable[[Page], Iterator[Finding]], ...] = (
    rules_values.documents_are_objects,
    rules_values.keys_once,
    rules_values.strings_are_strings,
    rules_values.labels_are_valid,
    rules_values.names_are_valid,
    rules_values.counts_are_numbers,
    rules_grace.grace_below_grace_over_time,
    rules_grace.grace_is_time,
    rules_grace.hook_and_signal_fit,
    rules_signals.fault_scheduling_means_something,
    rules_signals.signal_arrives,
    rules_signals.somebody_is_told,
    rules_signals.commands_are_lists_of_words,
    rules_names.config_maps_are_named_after_the_job,
    rules_names.config_maps_share_the_namespace,
    rules_names.config_maps_hold_their_key,
    rules_names.reset_config_is_watched,
    rules_names.ring_labels_agree,
    rules_names.gang_is_complete,
    rules_names.selector_finds_the_pods,
    rules_names.job_name_variable_is_the_jobs_name,
    rules_pod.requests_equal_limits,
    rules_pod.visible_devices_are_requested,
    rules_pod.image_is_there_at_a_restart,
    rules_pod.ascend_operator_finds_its_container,
    rules_volumes.mounts_name_volumes,
    rules_volumes.platform_files_arrive,
    rules_volumes.shared_memory_is_large,
    rules_policy.job_restarts_its_pods,
    rules_policy.policies_are_accepted,
    rules_policy.final_exit_codes_are_final,
    rules_policy.failing_codes_are_in_order,
    rules_policy.switches_have_known_values,
    rules_faultrun.options_are_understood,
    rules_faultrun.period_is_told,
    rules_faultrun.stop_grace_fits,
    rules_faultrun.checkpoints_outlive_the_pod,
    rules_faultrun.log_dir_can_be_written,
    rules_faultrun.lost_log_dir_resumes,
    rules_faultrun.hook_finds_the_run,
)


class NotAManifest(Exception):
    """The text is no Kubernetes manifest; ``line`` is 1-based."""

    def __init__(self, because: str, line: int) -> None:
        super().__init__(because)
        self.because = because
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What a manifest does not say. ``grace_over_time_s`` None: as a scheduler in the file says, else 900."""

    grace_over_time_s: int | None = None
    reader: Reader = no_wishes


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A text after ``--fix``: what was mended, with the lines of the old text, and what is left."""

    text: str
    mended: tuple[Finding, ...]
    left: tuple[Finding, ...]


def lint(text: str, cluster: Cluster) -> tuple[Finding, ...]:
    """Check every rule; findings in the order of their lines. NotAManifest if there is nothing to check.

    Patches are left out where a value is shared by an alias: it would change in two places.
    """
    try:
        stream = read(text)
    except MalformedText as error:
        hint = " (a Helm template must be rendered first)" if "{{" in text else ""
        raise NotAManifest(f"it is not YAML: {error.because}{hint}", error.line) from None
    manifest = manifest_of(stream)
    if not manifest.objects:
        line = manifest.stray[0].line if manifest.stray else 1
        raise NotAManifest("it holds no object with apiVersion and kind", line)
    grace_s, source = _grace_over_time(manifest, cluster)
    page = Page(text=text, manifest=manifest, grace_over_time_s=grace_s, source=source, reader=cluster.reader)
    found = sorted((one for rule in RULES for one in rule(page)), key=lambda one: one.line)
    return tuple(_unpatched(one) for one in found) if stream.aliases else tuple(found)


def mend(text: str, cluster: Cluster) -> Mended:
    """Apply patches until none is left.

    A round that breaks something, or leaves what it should mend, is not taken.
    """
    mended: list[Finding] = []
    given_up: set[tuple[str, str]] = set()
    left = lint(text, cluster)
    for _ in range(_ROUNDS):
        chosen = _apart([one for one in left if one.patches and _identity(one) not in given_up])
        if not chosen:
            break
        candidate = patched(text, [patch for one in chosen for patch in one.patches])
        remaining = _checked(candidate, cluster)
        failed = {_identity(one) for one in chosen} & {_identity(one) for one in remaining or ()}
        if remaining is None or failed or _broken(remaining) > _broken(left):
            given_up |= failed or {_identity(one) for one in chosen}
            continue
        mended += chosen
        text, left = candidate, remaining
    return Mended(text=text, mended=tuple(mended), left=left)


def _checked(text: str, cluster: Cluster) -> tuple[Finding, ...] | None:
    try:
        return lint(text, cluster)
    except NotAManifest:
        return None


def _identity(finding: Finding) -> tuple[str, str]:
    """What stays the same of a finding when lines above it are changed."""
    return finding.rule, finding.what


def _broken(findings: tuple[Finding, ...]) -> int:
    """How much of the text is wrong in itself: patches must never add to that."""
    return sum(finding.rule in _SYNTAX for finding in findings)


def _grace_over_time(manifest: Manifest, cluster: Cluster) -> tuple[int, str]:
    if cluster.grace_over_time_s is not None:
        return cluster.grace_over_time_s, "as given"
    for config_map in manifest.config_maps:
        data = scalar(config_map.root, "data", "volcano-scheduler.conf")
        match = _GRACE_OVER_TIME.search(data.value) if data else None
        if match and _SHORTEST_S <= int(match[1]) <= _LONGEST_S:
            return int(match[1]), "the scheduler's, in this file"
    return GRACE_OVER_TIME_S, "the scheduler's default"


def _unpatched(finding: Finding) -> Finding:
    return Finding(line=finding.line, rule=finding.rule, what=finding.what, why=finding.why, fix=finding.fix)


def _apart(findings: list[Finding]) -> list[Finding]:
    """Findings whose patches do not touch one another; the others have their turn in the next round."""
    chosen: list[Finding] = []
    taken: list[Patch] = []
    for finding in findings:
        free = all(
            patch.end < other.start or other.end < patch.start for patch in finding.patches for other in taken
        )
        if free:
            chosen.append(finding)
            taken += finding.patches
    return chosen
