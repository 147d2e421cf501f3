"""Steps of MindSpore's periodic files that can be compared over sessions that count from zero again.

A script that restores the optimizer goes on with its count (``global_step``), and nothing has to be done. One
that loads weights alone counts from zero again, and only the epoch in a file's name tells how far it is. The
step in a name is no witness: in a session that was resumed within an epoch MindSpore numbers its files by the
steps of the session, while the epochs in them are those of the training.

So counts are believed as long as they can be those of one training: some number of steps per epoch puts each
file into the epoch that its name tells. For counts that go on there always is one, the true one. A breakpoint
file without a count of its own gets one from its name and such a number.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from faultrun.model.checkpoint import Entry, Kind


def with_steps_of_all_sessions(entries: Sequence[Entry]) -> list[Entry]:
    """One series; the steps of sessions that counted from zero again are lifted by whole epochs."""
    located = list(_each_with_a_step(entries))
    possible, steps_per_epoch = _possible(located), infer_steps_per_epoch(located)
    if steps_per_epoch is None or (possible and steps_per_epoch not in possible):
        return located
    return [
        entry if possible and entry.global_step is not None else _with_epoch_count(entry, steps_per_epoch)
        for entry in located
    ]


def _each_with_a_step(entries: Sequence[Entry]) -> Iterator[Entry]:
    """A file that lacks its own count (a cut one) takes it from the others of its epoch."""
    starts: dict[tuple[int, int | None], int] = {
        (entry.session, entry.epoch): _epoch_start(entry)
        for entry in entries
        if entry.kind is Kind.PERIODIC and entry.epoch is not None and entry.global_step is not None
    }
    for entry in entries:
        start = starts.get((entry.session, entry.epoch))
        if entry.global_step is None and entry.step_in_epoch is not None and start is not None:
            yield replace(entry, global_step=start + entry.step_in_epoch)
        else:
            yield entry


def _possible(entries: Sequence[Entry]) -> range:
    """Steps per epoch that put each file into its epoch: (epoch - 1) n < step <= epoch n. May be empty."""
    fewest, most = 1, max((entry.global_step or 1 for entry in entries), default=1)
    for entry in entries:
        step, epoch = entry.global_step, entry.epoch
        if entry.kind is not Kind.PERIODIC or not step or not epoch:
            continue
        fewest = max(fewest, -(-step // epoch), entry.step_in_epoch or 0)
        if epoch > 1:
            most = min(most, (step - 1) // (epoch - 1))
    return range(fewest, most + 1)


def infer_steps_per_epoch(entries: Sequence[Entry]) -> int | None:
    """Steps per epoch on which most periodic files of one series agree; None when nothing tells.

    Two files of one session give it whatever that session's counts start from. Where there are no such two,
    one file gives it, as if its counts started at zero.
    """
    of_two: Counter[int] = Counter()
    of_one: Counter[int] = Counter()
    before: dict[tuple[int, int | None], tuple[int, int]] = {}
    for entry in sorted(
        entries, key=lambda one: (one.session, one.rank or 0, one.epoch or 0, one.step_in_epoch or 0)
    ):
        if entry.kind is not Kind.PERIODIC or entry.epoch is None or entry.global_step is None:
            continue
        start = _epoch_start(entry)
        earlier = before.get((entry.session, entry.rank), (entry.epoch, start))
        for votes, (epoch, earlier_start) in ((of_two, earlier), (of_one, (1, 0))):
            epochs, steps = entry.epoch - epoch, start - earlier_start
            divides = epochs > 0 and steps > 0 and steps % epochs == 0
            if divides and (entry.step_in_epoch or 0) <= steps // epochs:
                votes[steps // epochs] += 1
        before[entry.session, entry.rank] = (entry.epoch, start)
    votes = of_two or of_one
    return votes.most_common(1)[0][0] if votes else None


def _epoch_start(entry: Entry) -> int:
    return (entry.global_step or 0) - (entry.step_in_epoch or 0)


def _with_epoch_count(entry: Entry, steps_per_epoch: int) -> Entry:
    """Lift a count that began at zero again, by whole epochs.

    What a name has beyond a count that goes on (of a session that was resumed within an epoch) is no whole
    number of epochs, and not true.
    """
    if not entry.epoch or not entry.step_in_epoch or entry.step_in_epoch > steps_per_epoch:
        return entry
    counted = (entry.epoch - 1) * steps_per_epoch + entry.step_in_epoch
    ahead = counted - (entry.global_step or 0)
    goes_on = entry.global_step is not None and ahead % steps_per_epoch != 0
    return entry if ahead <= 0 or goes_on else replace(entry, global_step=counted)
