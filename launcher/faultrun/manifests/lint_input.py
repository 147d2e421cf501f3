"""What every rule is given: what was understood of a file, and the cluster's settings."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from faultrun.errors import FaultrunError
from faultrun.manifests.workload import (
    ConfigMap,
    Container,
    PlatformMap,
    Pod,
    Workload,
    is_object,
    platform_map,
    workload_of,
)
from faultrun.text.yaml_tree import MappingNode, Node, ScalarNode, items, scalar, text_at

GRACE_OVER_TIME_S = 900
"""The scheduler's default of grace-over-time (ascend-for-volcano, plugin/const.go)."""
GRACE_OVER_TIME_RANGE_S = (2, 3600)
"""Its least and its most (the same)."""

_SCHEDULER = "volcano-scheduler.conf"
_GRACE_OVER_TIME = re.compile(r"""["']?grace-over-time["']?\s*:\s*["']?(-?\d{1,9})""")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequirements:
    """What faultrun's options and variables ask of the pod around it; None where nothing is said.

    ``nodes``: of the run, ``min_nodes`` of which are enough. ``leader``: the host that serves etcd to all;
    ``etcd``: the hosts of one that is there, empty where it is meant and not named. ``lease_s``: see
    ``--lease_ttl``.
    """

    stop_grace_s: float | None = None
    log_dir: str | None = None
    checkpoint_dirs: tuple[str, ...] = ()
    resume: str | None = None
    nodes: int | None = None
    min_nodes: int | None = None
    leader: str | None = None
    etcd: tuple[str, ...] | None = None
    lease_s: int | None = None


Reader = Callable[[tuple[str, ...], Mapping[str, str]], PodRequirements]
"""Reads faultrun's words and variables as faultrun will; FaultrunError for what it would refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintSettings:
    """What a manifest does not say. ``grace_over_time_s`` None: as a scheduler in the file says, else 900."""

    grace_over_time_s: int | None = None
    reader: Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultrunCall:
    """One container with faultrun in it; ``refused`` is what faultrun would say of its command line."""

    container: Container
    environ: dict[str, str]
    asked: PodRequirements
    refused: FaultrunError | None = None

    @property
    def where(self) -> Node:
        """Where its command begins."""
        return self.container.word_nodes[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class LintInput:
    """One file under review; a ``List`` counts as its items."""

    roots: tuple[Node, ...]
    settings: LintSettings

    @cached_property
    def documents(self) -> tuple[Node, ...]:
        """Every document, a Kubernetes object or not."""
        opened = (items(root, "items") if is_object(root, "v1", "List") else (root,) for root in self.roots)
        return tuple(document for several in opened for document in several)

    @cached_property
    def objects(self) -> tuple[MappingNode, ...]:
        """The documents with ``apiVersion`` and ``kind``."""
        mappings = (one for one in self.documents if isinstance(one, MappingNode))
        return tuple(one for one in mappings if text_at(one, "apiVersion") and text_at(one, "kind"))

    @cached_property
    def workloads(self) -> tuple[Workload, ...]:
        """The objects that make pods."""
        return tuple(one for one in map(workload_of, self.objects) if one.pods)

    @cached_property
    def unchecked(self) -> tuple[str, ...]:
        """What no rule looks at, each once: kinds of documents, and scripts that are more than commands."""
        known = {id(one.root) for one in self.workloads}
        known |= {id(one.root) for one, *_ in self.platform_maps}
        known |= {id(one.root) for one in self.config_maps if scalar(one.root, "data", _SCHEDULER)}
        subdomains = {text_at(pod.spec, "subdomain") for pod in self.pods} - {""}
        services = (one for one in self.objects if is_object(one, "v1", "Service"))
        known |= {id(one) for one in services if text_at(one, "metadata", "name") in subdomains}
        foreign = (one.root for one in self.workloads if one.is_foreign)
        kinds = [f"{text_at(root, 'kind')} (all but its pods)" for root in foreign]
        kinds += [text_at(one, "kind") for one in self.objects if id(one) not in known]
        without = len(self.documents) > len(self.objects)
        kinds += ["what has no apiVersion and kind"] if without else []
        kinds += [
            f"the shell script of container {one.name}, in which faultrun cannot be read"
            for workload in self.workloads
            for one in workload.containers
            if one.hides_faultrun
        ]
        return tuple(dict.fromkeys(kinds))

    @property
    def pods(self) -> Iterator[Pod]:
        """The pods of all workloads."""
        return (pod for workload in self.workloads for pod in workload.pods)

    @property
    def containers(self) -> Iterator[Container]:
        """The containers of all workloads."""
        return (container for pod in self.pods for container in pod.containers)

    @cached_property
    def config_maps(self) -> tuple[ConfigMap, ...]:
        """The config maps that the file defines."""
        return tuple(ConfigMap(root=root) for root in self.objects if is_object(root, "v1", "ConfigMap"))

    @property
    def platform_maps(self) -> Iterator[tuple[ConfigMap, ScalarNode, PlatformMap]]:
        """The config maps of the platform, with their names."""
        for config_map in self.config_maps:
            if config_map.name is not None and (platform := platform_map(config_map.named)) is not None:
                yield config_map, config_map.name, platform

    @cached_property
    def grace_over_time(self) -> tuple[int, str]:
        """The scheduler's grace-over-time in seconds, and who says so."""
        if self.settings.grace_over_time_s is not None:
            return self.settings.grace_over_time_s, "as given"
        for config_map in self.config_maps:
            match = _GRACE_OVER_TIME.search(text_at(config_map.root, "data", _SCHEDULER))
            if match and GRACE_OVER_TIME_RANGE_S[0] <= int(match[1]) <= GRACE_OVER_TIME_RANGE_S[1]:
                return int(match[1]), "the scheduler's, in this file"
        return GRACE_OVER_TIME_S, "the scheduler's default"

    @cached_property
    def calls(self) -> tuple[FaultrunCall, ...]:
        """Every container that starts faultrun by name."""
        return tuple(self._call(one, one.faultrun) for one in self.containers if one.faultrun is not None)

    def _takes(self, words: tuple[str, ...], environ: dict[str, str]) -> bool:
        try:
            self.settings.reader(words, environ)
        except FaultrunError:
            return False
        return True

    def _call(self, container: Container, words: tuple[str, ...]) -> FaultrunCall:
        literal = (one for one in container.variables if scalar(one, "value"))
        environ = {text_at(one, "name"): text_at(one, "value") for one in literal}
        try:
            asked = self.settings.reader(words, environ)
        except FaultrunError as error:
            rest = {name: value for name, value in environ.items() if self._takes(words, {name: value})}
            asked = self.settings.reader(words, rest) if self._takes(words, rest) else PodRequirements()
            return FaultrunCall(container=container, environ=environ, asked=asked, refused=error)
        return FaultrunCall(container=container, environ=environ, asked=asked)
