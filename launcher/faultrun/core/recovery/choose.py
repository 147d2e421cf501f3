"""Choose where to resume: the newest step that is whole for every replica group.

Opens no file. Verification is asked for, newest first and no more than needed: the caller repeats
``choose``, verifies the paths of ``NeedVerdicts`` and adds the verdicts, until the answer is another.

``core/recovery/candidate_order.py`` says which candidate is newer. On equal step periodic beats gasp and
gasp beats best; where the number of workers may change, what serves any number beats what does not.

One recovery point is one state of training. Files of several replica groups are taken together only if they
agree on run, incarnation, epoch and world size, and on the session if they tell no incarnation: two lives
that passed the same step did not compute the same state.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from faultrun.core.humanize import rank_names
from faultrun.core.recovery.candidate_order import Moment, least_preferred, moments
from faultrun.core.recovery.need import Need
from faultrun.core.recovery.replica_groups import Group
from faultrun.core.recovery.reshardable import cut_anew, fixed_by, serves_any_world
from faultrun.model.checkpoint import Entry, Kind, RankFile, RecoveryPoint, Refusal, Shared, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Resume at ``point``; ``refused`` are the newer candidates and why not they."""

    point: RecoveryPoint
    refused: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedVerdicts:
    """The answer depends on whether these files are whole: verify them and ask again."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoneUsable:
    """Candidates exist and none can be resumed from: starting from zero would hide it (exit code 65).

    ``unverifiable`` of them are not torn: only ``Doubt.trust`` takes them for whole.
    """

    refused: tuple[Refusal, ...]
    unverifiable: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingFound:
    """There is no candidate of this run; ``refused`` lists what belongs to others or was never finished."""

    refused: tuple[Refusal, ...] = ()


Choice = Chosen | NeedVerdicts | NoneUsable | NothingFound


def choose(
    candidates: Sequence[Entry],
    verdicts: Mapping[str, Verdict],
    need: Need,
    *,
    broken: Sequence[Refusal] = (),
) -> Choice:
    """Return the recovery point for ``need``, or what must be verified to find it.

    ``verdicts`` is by path. ``broken`` was refused before it became a candidate (a link out, a directory that
    cannot be listed): it makes "nothing whole" out of "nothing found". Files of another run count as nothing
    of ours.
    """
    own = _own_end(candidates, need)
    candidates = [*_of_told_ranks(candidates, own)] if own and need.world.own_files else candidates
    foreign = [_refusal(entry, _foreign(entry, need)) for entry in candidates if _foreign(entry, need)]
    ours = [entry for entry in candidates if not _foreign(entry, need)]
    refused: list[Refusal] = [*broken]
    named = _named_groups(ours, need) or _own_files(ours, need)
    trusted = {path: replace(one, whole=one.whole or one.unverifiable) for path, one in verdicts.items()}
    for moment in moments(ours):
        fit: list[Entry] = []
        for entry in moment.entries:
            if why := _unfit(entry, moment, need, own):
                refused.append(_refusal(entry, why))
            else:
                fit.append(entry)
        groups = _groups_of(fit, need, named)
        judged, answer = verdicts, _serve(fit, verdicts, groups, partly=need.disks.partly)
        if isinstance(answer, _Unserved) and need.doubt.trust:
            judged = trusted
            answer = _serve(fit, judged, groups, partly=need.disks.partly)
        if need.world.elastic and isinstance(answer, tuple) and _fixed_by(answer, moment, need):
            world = need.world
            free = [entry for entry in fit if serves_any_world(entry, world.groups, world.resharded)]
            answer = freer if not isinstance(freer := _serve(free, judged, groups), _Unserved) else answer
        if isinstance(answer, NeedVerdicts):
            return answer
        refused += [_refusal(entry, judged[entry.path].why) for entry in fit if not _is_whole(entry, judged)]
        if isinstance(answer, _Unserved):
            refused += [_refusal(entry, answer.why) for entry in fit if _is_whole(entry, judged)]
            continue
        answer = cut_anew(answer, need.world.groups, need.world.resharded) if need.world.elastic else answer
        point = _point(answer, unverified=any(judged[one.path].unverifiable for _, one in answer))
        if need.world.elastic:
            point = replace(point, fixed_by=_fixed_by(answer, moment, need))
        if len(point.files) < need.world.size:
            point = replace(point, part_of=_state_of(answer[0][1]))
        return Chosen(point=point, refused=(*refused, *foreign))
    if not ours and not broken:
        return NothingFound(refused=tuple(foreign))
    unverifiable = sum(verdicts[one.path].unverifiable for one in ours if one.path in verdicts)
    return NoneUsable(refused=(*refused, *foreign), unverifiable=unverifiable)


def choose_first(
    candidates: Sequence[Entry],
    verdicts: Mapping[str, Verdict],
    needs: Iterable[Need],
    *,
    broken: Sequence[Refusal] = (),
) -> Choice:
    """Return the choice for the first of ``needs`` that something whole serves, or for the last."""
    choice: Choice = NothingFound()
    for need in needs:
        if not isinstance((choice := choose(candidates, verdicts, need, broken=broken)), NoneUsable):
            break
    return choice


def _foreign(entry: Entry, need: Need) -> str:
    if need.whose.run_id is None or entry.run_id is None:
        return ""
    if entry.run_id == need.whose.run_id:
        return f"written by an earlier run {entry.run_id}, which has ended" if entry.finished else ""
    return f"written by run {entry.run_id}, this is run {need.whose.run_id}"


def _own_end(entries: Iterable[Entry], need: Need) -> "re.Pattern[str] | None":
    """How the paths end that each rank is told; None where the recovery point says it."""
    ends = [re.compile(f"(?:.*/)?{one}") for one in need.world.own_names]
    fits = (end for end in ends if any(end.fullmatch(one.path) for one in entries))
    return next(fits, ends[-1] if ends else None)


def _of_told_ranks(entries: Sequence[Entry], own: "re.Pattern[str]") -> Iterator[Entry]:
    """``entries``, with a rank where only the option that tells each rank its file says which number that is.

    Those of one step are of one save, though they were seen as several: a number may count saves.
    """
    ranks, written = dict[str, int](), dict[int | None, int]()
    for one in entries:
        if one.rank is None and (told := own.fullmatch(one.path)) is not None:
            ranks[one.path] = int(told[1])
            written[one.global_step] = max(one.written, written.get(one.global_step, 0))
    for one in entries:
        at = one.written if one.global_step is None else written.get(one.global_step, 0)
        yield replace(one, rank=ranks[one.path], written=at) if one.path in ranks else one


def _unfit(entry: Entry, moment: Moment, need: Need, own: "re.Pattern[str] | None") -> str:
    """Why ``entry`` must not be used, whatever its bytes are; '' if it may."""
    if any(one.accuses(entry.path, entry.identity) for one in need.doubt.quarantine):
        return "quarantined: two restarts made no progress past it"
    told = own is not None and (need.world.own_files or entry.rank is not None)
    if entry.lacks or (told and own is not None and not own.fullmatch(entry.path)):
        return entry.lacks or "the option that tells each rank its file names another"
    serves_any = serves_any_world(entry, need.world.groups, need.world.resharded)
    if entry.world_size not in (None, need.world.size) and not serves_any:
        shard = entry.replica_group and not entry.replicated
        held = f"; its state is sharded: this file holds that of {rank_names(entry.replica_group)} only"
        return f"written by {entry.world_size} ranks, this run has {need.world.size}{held if shard else ''}"
    if (widest := moment.last_rank.get(entry.series, 0)) >= need.world.size and not serves_any:
        return f"rank {widest} saved this step too, so it was written by more than {need.world.size} ranks"
    if need.world.resized and (why := fixed_by(entry, widest, need.world.groups, need.world.resharded)):
        return why.removeprefix(f"{entry.path} ")
    if need.whose.shared_with and entry.run_id is None and entry.path not in need.whose.ours:
        return f"may be another run's: {need.whose.shared_with} saves there too, and it names no run"
    if need.whose.namesake and entry.run_id == need.whose.run_id:
        return f"may be another run's: {need.whose.shared_with} saves there too, and has this run's id"
    if entry.rank in need.doubt.lost_ranks:
        return f"the disk of rank {entry.rank} is lost"
    if need.doubt.after_fault and entry.doubtful and not entry.known:
        return "may be half updated: saved around a rank's death, by a writer that does not check"
    return ""


def _fixed_by(service: "_Service", moment: Moment, need: Need) -> str:
    """Why only as many workers as it was chosen for can resume from these files; empty if any number can."""
    last, more = moment.last_rank, (need.world.groups, need.world.resharded)
    whys = (fixed_by(entry, last.get(entry.series, 0), *more) for _, entry in service)
    return next(filter(None, whys), "")


def _serve(
    fit: Sequence[Entry], verdicts: Mapping[str, Verdict], groups: Sequence[Group], *, partly: bool = False
) -> "_Service | NeedVerdicts | _Unserved":
    """A whole file for each group of one moment (``partly``: that has one); or what to verify, or why not."""
    reason = ""
    for entries in _coherent_sets(fit, groups):
        picks = [_pick(entries, group, groups, verdicts) for group in groups]
        lacking = [sorted(group) for group, entry in zip(groups, picks, strict=True) if entry is None]
        some = partly and len(lacking) < len(groups) and fit[0].global_step is not None
        if lacking and not some:
            where = " of one life" if len({_life(entry) for entry in fit}) > 1 else ""
            reason = reason or f"this step has no whole file for {rank_names(lacking[0])}{where}"
            continue
        chosen = [entry for entry in picks if entry is not None]
        unknown = tuple(dict.fromkeys(entry.path for entry in chosen if entry.path not in verdicts))
        served = [(group, one) for group, one in zip(groups, picks, strict=True) if one is not None]
        return NeedVerdicts(paths=unknown) if unknown else tuple(served)
    return _Unserved(why=reason or "nothing at this step can be used")


_Service = tuple[tuple[Group, Entry], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unserved:
    """A group has nothing whole at this moment."""

    why: str


def _groups_of(fit: Sequence[Entry], need: Need, named_elsewhere: Sequence[Group]) -> tuple[Group, ...]:
    """The groups to serve at one moment; a rank that no manifest names is in a group of its own.

    Named by the run, else by the moment's own files, else by files of other moments: a file that does not
    tell whom it serves is a shard where others of its run are. Of groups that overlap the smaller counts.
    """
    everybody = frozenset(range(need.world.size))
    given = need.world.groups
    named = given if given is not None else _named_groups(fit, need) or named_elsewhere
    if not named:
        return (everybody,)
    known: list[Group] = []
    alone = everybody
    for group in sorted(named, key=lambda one: (len(one), sorted(one))):
        if group <= alone:
            known.append(group)
            alone -= group
    return tuple(sorted([*known, *(frozenset({rank}) for rank in alone)], key=min))


def _named_groups(entries: Iterable[Entry], need: Need) -> tuple[Group, ...]:
    """The replica groups that manifests name; a replicated state of any world serves all ranks."""
    everybody = frozenset(range(need.world.size))
    return tuple(
        dict.fromkeys(
            everybody if entry.replicated else frozenset(entry.replica_group)
            for entry in entries
            if entry.replica_group and (entry.replicated or entry.world_size in (None, need.world.size))
        )
    )


def _own_files(entries: Iterable[Entry], need: Need) -> tuple[Group, ...]:
    """A group for each rank that loads its own file; in a folder, one without goes with that before it."""
    size, by_number, ranks = need.world.size, need.world.own_files, dict[str, set[int]]()
    for one in entries if by_number is not False else ():
        if one.rank is not None and one.rank < size and one.kind is Kind.PERIODIC:
            ranks.setdefault(one.path.rpartition("/")[0], set()).add(one.rank)
    own = set[int]().union(*(one for one in ranks.values() if by_number or len(one) > 1))
    begins = range(size + 1) if by_number else (0, *sorted(own)[1:], size)
    return tuple(frozenset(range(*both)) for both in pairwise(begins)) if own else ()


def _coherent_sets(fit: Sequence[Entry], groups: Sequence[Group]) -> Iterator[Sequence[Entry]]:
    """Candidates that may be mixed with each other, the preferred ones first.

    Sessions may differ where every rank has only one file to offer: a rank
    that never saved before did not have to count its name up.
    """
    if len(groups) == 1:
        yield fit
        return
    lives: dict[tuple[object, ...], list[Entry]] = {}
    for entry in fit:
        lives.setdefault(_life(entry), []).append(entry)
    for of_one_life in lives.values():
        sessions: dict[int, list[Entry]] = {}
        for entry in of_one_life:
            sessions.setdefault(entry.session, []).append(entry)
        yield from sessions.values()
        if len(sessions) > 1 and len({entry.rank for entry in of_one_life}) == len(of_one_life):
            yield of_one_life


def _life(entry: Entry) -> tuple[object, ...]:
    """What files of one state have in common; telling nothing is not the same as telling the same."""
    return (entry.run_id, entry.life, entry.epoch, entry.world_size)


def _state_of(entry: Entry) -> str:
    """What files of one state on the disks of several nodes have in common, beside step and epoch."""
    told = (entry.run_id, *entry.life, entry.world_size)
    return " ".join(map(str, told if entry.incarnation is not None else (*told, entry.session)))


def _pick(
    entries: Sequence[Entry], group: Group, groups: Sequence[Group], verdicts: Mapping[str, Verdict]
) -> Entry | None:
    """The first file for ``group`` that is whole or not yet looked at."""
    for entry in entries:
        shard = bool(entry.replica_group) and not entry.replicated and not group <= {*entry.replica_group}
        serves = entry.rank is None or entry.rank in group or len(groups) == 1
        if serves and not shard and _is_whole(entry, verdicts):
            return entry
    return None


def _is_whole(entry: Entry, verdicts: Mapping[str, Verdict]) -> bool:
    """Whether nothing is known against it."""
    return entry.path not in verdicts or verdicts[entry.path].whole


def _refusal(entry: Entry, why: str) -> Refusal:
    return Refusal(path=entry.path, global_step=entry.global_step, why=why)


def _point(service: _Service, *, unverified: bool) -> RecoveryPoint:
    """``restore_ranks`` and ``restore_ranks_map`` are in the forms that mindx_elastic gives trainers.

    The map's keys are whole groups: ``{"0,8": 0, "1,9": 9}``. A reader must split them at
    the commas: rank 1 is not in "10,18".
    """
    first = service[0][1]
    each = ((rank, entry) for group, entry in service for rank in group)
    files = (RankFile(rank=rank, path=entry.path, from_rank=entry.rank) for rank, entry in each)
    suppliers = {
        ",".join(map(str, sorted(group))): entry.rank if entry.rank in group else min(group)
        for group, entry in service
    }
    return RecoveryPoint(
        path=first.path,
        kind=least_preferred(entry for _, entry in service),
        global_step=first.reached,
        epoch=first.epoch,
        step_in_epoch=first.step_in_epoch,
        files=tuple(sorted(files, key=lambda file: file.rank)),
        source=Shared(),
        restore_ranks=",".join(str(rank) for rank in sorted(suppliers.values(), key=lambda rank: rank or 0)),
        restore_ranks_map=json.dumps(suppliers),
        identity=first.identity,
        unverified=unverified,
        named_step=None if first.seen_step is None else first.global_step,
    )
