"""Catalogs and surveys of test directories, with the formats that one test file is about."""

from collections.abc import Sequence
from pathlib import Path

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.find import Findings, scan_and_choose
from faultrun.checkpoints.format import Format
from faultrun.checkpoints.formats import faultrun_manifest
from faultrun.checkpoints.formats.mindspore import ckpt, ttp
from faultrun.checkpoints.registry import Registry
from faultrun.core.recovery.need import Need, World
from faultrun.model.checkpoint import Depth, Entry, Verdict

MINDSPORE: tuple[Format, ...] = (faultrun_manifest.GASP_MANIFEST, ttp.TTP, ckpt.MINDSPORE_CKPT)


def catalog_of(root: Path, formats: Sequence[Format] = MINDSPORE, *, memory: Path | None = None) -> Catalog:
    """A catalog that trusts all writers to be dead, so that no test waits."""
    path = None if memory is None else str(memory)
    return Catalog([str(root)], memory_path=path, settle_s=0.0, registry=Registry(formats=tuple(formats)))


def survey_of(root: Path, need: Need | None = None, formats: Sequence[Format] = MINDSPORE) -> Findings:
    return scan_and_choose(catalog_of(root, formats), need or Need(world=World(size=1)))


def only(root: Path, formats: Sequence[Format] = MINDSPORE) -> Entry:
    (entry,) = catalog_of(root, formats).scan().entries
    return entry


def judge(
    root: Path, name: str, depth: Depth = Depth.CHECKSUM, formats: Sequence[Format] = MINDSPORE
) -> Verdict:
    """The verdict on one file below ``root``."""
    catalog = catalog_of(root, formats)
    (entry,) = [entry for entry in catalog.scan().entries if entry.path == f"{root}/{name}"]
    return catalog.verify(entry, depth=depth)


def reasons(found: Findings, root: Path) -> dict[str, str]:
    """Every refusal by its path below ``root``."""
    return {str(Path(refusal.path).relative_to(root)): refusal.why for refusal in found.refused}
