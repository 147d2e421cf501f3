"""What people are told of checkpoints: what would be handed over, and what is no recovery point."""

import os
import shlex
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.find import Findings
from faultrun.checkpoints.formats.unrecognised import pattern_of, unknown_files
from faultrun.checkpoints.names import base_name, step_in
from faultrun.checkpoints.reading import naming
from faultrun.checkpoints.saves.given_files import main_files, other_kinds
from faultrun.checkpoints.saves.save_names import masked
from faultrun.core import template
from faultrun.core.recovery.candidate_order import own_saves
from faultrun.core.recovery.need import Whose
from faultrun.errors import ConfigError
from faultrun.model.checkpoint import Entry, Kind, Refusal
from faultrun.model.observed.saves import FirstSaveTold, SavesSeen
from faultrun.model.spec.run_spec import Recovery, RunSpec

OF_NO_FORMAT = (
    "first save: in no known format, so nothing could be handed over; try --checkpoint_pattern=REGEX"
)
NOT_WATCHED = (
    "; not everything could be watched here (too many folders, or no inotify): names and steps alone tell"
    " what belongs to a save, and what a script loads"
)
_MOST_FILES = 4
_ENOUGH = 3


def tell_first_save(
    told: FirstSaveTold,
    spec: RunSpec,
    catalog: Catalog,
    elsewhere: Sequence[str],
    whose: Whose,
    *,
    whole: bool,
    seen: SavesSeen,
) -> FirstSaveTold | None:
    """``told`` with what would be handed over; None where all of ``elsewhere`` is no checkpoint.

    ``whole``: nothing that was saved or loaded can have been missed.
    """
    entries = catalog.scan().entries
    saves = [one for one in own_saves(entries, ()) if one.path not in seen.prepared]
    newest = next((one for one in saves if not one.lacks), None)
    if newest is None:
        found = catalog.holding(elsewhere) if not saves else ""
        unknown = unknown_files(catalog.roots, catalog.registry.formats)
        none = f"first save: {unknown}" if unknown else OF_NO_FORMAT
        words = saved_elsewhere(found, spec.recovery) if found else none
        written = seen.saves[-1].paths if seen.saves else ()
        if any(one.kind is Kind.GASP and one.path in written for one in entries):
            return None
        gone = not any(map(os.path.exists, elsewhere or written))
        return None if saves or gone or (elsewhere and not (found or unknown)) else replace(told, words=words)
    beside, by_pattern = catalog.beside(newest.path), newest.format == "pattern"
    mains = (newest.path,) if by_pattern or not newest.save else main_files([newest.path, *beside])
    others = () if by_pattern else other_kinds(newest.path, seen)
    instead = tuple(path for path in (*(mains or beside), *others) if path != newest.path)
    told = replace(told, path=newest.path, beside=beside, instead=instead)
    doubt = f"; but it may be another run's: {whose.shared_with} saves there too, so it would be refused"
    doubted = whose.shared_with and newest.run_id is None and newest.path not in whose.ours
    more = f"{doubt if doubted else ''}{'' if whole else NOT_WATCHED}"
    return replace(told, words=f"{first_save_words(told, spec, newest, seen)}{more}")


def first_save_words(told: FirstSaveTold, spec: RunSpec, newest: Entry, seen: SavesSeen) -> str:
    """What would be handed over after a fault, as what, and what belongs to it; or which option tells.

    ``newest`` is that checkpoint: of some only presence and size can be checked. Reads configurations.
    """
    names = [base_name(path) for path in told.beside]
    shown = ", ".join(names[:_MOST_FILES]) + (", ..." if len(names) > _MOST_FILES else "")
    beside = f" (with {shown})" if names else ""
    line = f"first save: {os.path.relpath(told.path)}{beside} would be handed over"
    line += f" {_handed_as(newest, spec)}"
    if newest.format == "pattern":
        line += "; what its layout does not show cannot be checked, but that it is there"
    if told.instead:
        line += f"; that is a guess among {1 + len(told.instead)} files that the script saves: "
        line += f"--checkpoint_pattern={_pattern(base_name(told.path), seen)} says which one the script loads"
    return line


def _pattern(name: str, seen: SavesSeen) -> str:
    """What to try for names like this one: a number that was not seen to grow with saves may be a rank's."""
    kinds = [(one, masked(base_name(one.files[0]))) for one in seen.saves]
    told = [(one.step or 0, one.number or 0) for one, kind in kinds if kind == masked(name)]
    grows = all(step < later and number < larger for (step, number), (later, larger) in pairwise(told))
    is_step = grows and (len(told) >= _ENOUGH or any(step == number for step, number in told))
    known = is_step or name == masked(name) or step_in(name) is not None
    return shlex.quote(pattern_of(name)) if known else "REGEX"


def saved_elsewhere(path: str, recovery: Recovery) -> str:
    """That a checkpoint lies where faultrun does not look, and the option that has it found."""
    folder, _, name = path.rpartition("/")
    if step_in(name) is None and step_in(base_name(folder)) is not None:
        folder = folder.rpartition("/")[0]
    looks = " ".join(map(os.path.relpath, recovery.checkpoint_dirs))
    where = f"--checkpoint_dir={looks}" if looks else "no --checkpoint_dir is given"
    return (
        f"first save: {os.path.relpath(path)} lies where faultrun does not look ({where}); "
        f"--checkpoint_dir={shlex.quote(os.path.relpath(folder))} has it checked and chosen after a fault"
    )


def _handed_as(entry: Entry, spec: RunSpec) -> str:
    recovery = spec.recovery
    if recovery.resume_args:
        path = os.path.relpath(entry.path)
        known = template.Values(
            checkpoint=path,
            run_id=spec.run_id,
            incarnation=1,
            epoch=entry.epoch,
            step=entry.step_in_epoch if entry.step_in_epoch is not None else entry.global_step,
            global_step=entry.global_step,
            is_directory=Path(entry.path).is_dir(),
        )
        with suppress(ConfigError):
            return f"as {template.render(template.parse(recovery.resume_args[0]), known)}"
        return f"as {recovery.resume_args[0].replace('{checkpoint}', path)}"
    if recovery.rewrites:
        return f"as {recovery.rewrites[0].key} of {recovery.rewrites[0].file}{_rewritten(spec)}"
    if recovery.handed_over:
        return "as FAULTRUN_RESUME_FROM"
    return "if an option said how: --resume_arg, --rewrite; the script decides by itself where it begins"


def as_opened(refused: Refusal, opened: Collection[str]) -> Refusal:
    """With the word that the script opened this very file, and the small file beside it that names it."""
    if refused.path not in opened:
        return refused
    folder, _, name = refused.path.rpartition("/")
    pointers = (one for place in (folder, folder.rpartition("/")[0]) for one in naming(place, name))
    names = next(pointers, "")
    led = f", led there by {names}" if names else ""
    return replace(refused, why=f"{refused.why}; the script opened it{led}")


def gone(expected: str, places: Sequence[str], because: str) -> str:
    """Why a run that had the checkpoint ``expected`` does not go on from what lies in ``places``."""
    what = f"the checkpoints in {' '.join(places)} are gone"
    hint = "bring them back and give the same command again; --log_dir=OTHER begins from zero"
    if expected and not any(expected.startswith(f"{one}/") for one in places):
        what = f"the checkpoints of this run are not in {' '.join(places)}"
        hint = "--checkpoint_dir as before, for this log_dir goes on with its run; or --log_dir=OTHER"
    known = f"; this run had {expected}" if expected else ""
    return f"{what}\n  because: {because}{known}\n  try:     {hint}"


def none_usable(
    found: Findings,
    refused: Sequence[Refusal],
    roots: str,
    as_many: int | None,
    unverifiable: int,
    *,
    shared: bool,
) -> str:
    """Why a run cannot go on from what lies in ``roots``, and what to try.

    ``as_many`` workers wrote it, if not as many as there are; ``unverifiable`` of it cannot be proved;
    ``shared``: another run saves there, too.
    """
    count = len(found.scan.entries) + len(found.scan.refused)
    none = "usable" if found.scan.entries and not found.verdicts else "whole"  # nothing was worth reading
    what, because = f"no {none} checkpoint in {roots}", f"{count} found, none {none}"
    hint = f"faultrun ckpt list --why {roots}"
    if as_many:
        hint = f"--worker_num={as_many}, as many as wrote them{_made_to_fit(found.scan.entries)}"
    if unverifiable:
        what = f"no checkpoint in {roots} can be verified" if unverifiable == count else what
        because = (
            f"{count} found, {unverifiable} of them not known to be torn, but nothing can prove them whole"
        )
        hint = "the same command with --trust, to resume from what cannot be verified"
    if shared:
        hint = "a --checkpoint_dir for each run; or --resume=always, to take the newest of any run"
    told = (*found.refused[:1], *refused[len(found.refused) :])
    because += "".join(f"; {one.path}: {one.why}" for one in told)
    return f"{what}\n  because: {because}\n  try:     {hint}"


def _made_to_fit(entries: Sequence[Entry]) -> str:
    """What else a person can do for another number of workers."""
    if any(one.replica_group and not one.replicated for one in entries):
        return ": a shard serves no other world"
    if all(one.rank is not None for one in entries):
        return "; or move the files of all ranks but rank 0 away, if all of them hold the same"
    return "; or a recipe with world_size: any, if the script loads them into another number"


def _rewritten(spec: RunSpec) -> str:
    """What is odd about the configurations as they are now; '' for nothing."""
    from faultrun.configs.apply import check  # noqa: PLC0415  most runs rewrite nothing

    try:
        results = check(spec.recovery.rewrites, originals=Path(spec.logs.log_dir).absolute() / "original")
    except ConfigError as error:
        return f"; that would fail now: {str(error).partition(chr(10))[0]}"
    new = [change.key for result in results for change in result.changes if change.before is None]
    return f" ({', '.join(new)} is not there yet: it would be added)" if new else ""
