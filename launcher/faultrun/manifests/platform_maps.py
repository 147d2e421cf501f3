"""The config maps through which Ascend's components talk to a job.

Prefix and key cannot be chosen: the components write exactly there. The folder is where the platform's
own scripts, and faultrun, look for the file.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from faultrun.manifests.page import Page
from faultrun.manifests.workload import ConfigMap


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformMap:
    """The name is ``prefix`` and the job's; ``key`` is what is written; ``holds`` says what that is."""

    prefix: str
    key: str
    folder: str
    holds: str


PLATFORM_MAPS = (
    PlatformMap(
        prefix="rings-config-",
        key="hccl.json",
        folder="/user/serverid/devindex/config",
        holds="the rank table",
    ),
    PlatformMap(
        prefix="fault-config-",
        key="fault-npus",
        folder="/user/restore/fault/config",
        holds="the ranks that failed",
    ),
    PlatformMap(
        prefix="reset-config-",
        key="reset.json",
        folder="/user/restore/reset/config",
        holds="the state of devices that are reset",
    ),
)


def platform_map(name: str) -> PlatformMap | None:
    """The config map that ``name`` is one of, by its prefix."""
    return next((one for one in PLATFORM_MAPS if name.startswith(one.prefix)), None)


def platform_maps(page: Page) -> Iterator[tuple[ConfigMap, PlatformMap]]:
    """The platform's config maps that the file defines."""
    for config_map in page.manifest.config_maps:
        found = platform_map(config_map.name.value) if config_map.name else None
        if found is not None:
            yield config_map, found
