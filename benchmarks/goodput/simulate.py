"""A training under faults: how much of its time became the final weights, and where the rest went."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from benchmarks.goodput.answers import Answer, Answers, Job
from benchmarks.goodput.failures import Fault, Kind
from benchmarks.goodput.policies import Layout, Policy


@dataclass(slots=True, kw_only=True)
class Spent:
    """Seconds of one training, each counted once. ``useful_s`` of all of them is ETTR."""

    useful_s: float = 0.0
    saving_s: float = 0.0
    again_s: float = 0.0
    noticing_s: float = 0.0
    hardware_s: float = 0.0
    restarting_s: float = 0.0
    copying_s: float = 0.0

    @property
    def total_s(self) -> float:
        """All of it."""
        return float(sum(getattr(self, one.name) for one in fields(self)))

    @property
    def ettr(self) -> float:
        """The effective training time ratio: useful time in all time."""
        return self.useful_s / self.total_s


class Stretch(NamedTuple):
    """Uninterrupted time: trained, saving, and what no file has at its end."""

    trained_s: float
    saving_s: float
    unsaved_s: float


def train(gap_s: float, unsaved_s: float, every_s: float, save_s: float) -> Stretch:
    """``gap_s`` of training that begins with ``unsaved_s`` done since the last save.

    A save stops training and counts when it is complete; one that is cut off is worth nothing.
    """
    until_save_s = max(0.0, every_s - unsaved_s)
    if gap_s < until_save_s:
        return Stretch(trained_s=gap_s, saving_s=0.0, unsaved_s=unsaved_s + gap_s)
    rest_s = gap_s - until_save_s
    whole, rest_s = divmod(rest_s, every_s + save_s)
    if rest_s < save_s:
        return Stretch(
            trained_s=until_save_s + whole * every_s,
            saving_s=whole * save_s + rest_s,
            unsaved_s=every_s if whole else unsaved_s + until_save_s,
        )
    trained_s = until_save_s + whole * every_s + rest_s - save_s
    return Stretch(trained_s=trained_s, saving_s=(whole + 1) * save_s, unsaved_s=rest_s - save_s)


def run(faults: Iterable[Fault], policy: Policy, job: Job) -> Spent:
    """One training of ``job`` under ``policy``, which meets ``faults``.

    A fault during a recovery begins that recovery anew; it cannot end earlier than it would have.
    """
    return _run(faults, policy, job, Answers(policy, job))


def _run(faults: Iterable[Fault], policy: Policy, job: Job, answers: Answers) -> Spent:
    assumed = job.assumed
    length_s, spares = assumed.length_s, assumed.spare_nodes(job.devices) if policy.spares else 0
    spent = Spent()
    returns_s: list[float] = []  # when nodes that are repaired will be spares again
    up_s, unsaved_s, trained_s = 0.0, 0.0, 0.0
    for fault in faults:
        if fault.at_s > up_s:
            trained_s, unsaved_s = _train(spent, job, trained_s, unsaved_s, fault.at_s - up_s)
        spare = False
        if spares and fault.kind is Kind.NODE:
            returns_s = [at_s for at_s in returns_s if at_s > fault.at_s]
            spare = len(returns_s) < spares
            if spare:
                returns_s.append(fault.at_s + assumed.repair_s)
        said = answers.answer(fault, spare=spare, unsaved=unsaved_s > 0)
        lost_s = min(unsaved_s, said.again_s) if said.kept else unsaved_s
        spent.again_s += lost_s
        unsaved_s = 0.0 if said.saved or not said.kept else unsaved_s - lost_s
        _wait(spent, fault.at_s, said, max(up_s, fault.at_s), length_s)
        up_s = max(up_s, fault.at_s + said.down_s)
    if up_s < length_s:
        trained_s, _ = _train(spent, job, trained_s, unsaved_s, length_s - up_s)
    kept_s = trained_s - spent.again_s
    if policy.snapshots and job.layout is Layout.SHARDED:
        spent.copying_s = kept_s * assumed.copy_s / (job.copy_every_s + assumed.copy_s)
    spent.useful_s = kept_s - spent.copying_s
    return spent


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    """Many trainings: where the time of a mean one went, and every single one's ETTR in ascending order."""

    mean: Spent
    ettrs: tuple[float, ...]


def run_all(all_faults: Sequence[Sequence[Fault]], policy: Policy, job: Job) -> Many:
    """Every list of faults is one training. Those without a fault are all alike, and run once."""
    answers = Answers(policy, job)
    quiet = sum(not faults for faults in all_faults)
    calm = _run((), policy, job, answers)
    eventful = [_run(faults, policy, job, answers) for faults in all_faults if faults]
    mean = {
        one.name: (quiet * getattr(calm, one.name) + sum(getattr(spent, one.name) for spent in eventful))
        / len(all_faults)
        for one in fields(Spent)
    }
    ettrs = sorted([calm.ettr] * quiet + [spent.ettr for spent in eventful])
    return Many(mean=Spent(**mean), ettrs=tuple(ettrs))


def _train(spent: Spent, job: Job, trained_s: float, unsaved_s: float, gap_s: float) -> tuple[float, float]:
    """Trained in all, and unsaved, after ``gap_s`` more."""
    stretch = train(gap_s, unsaved_s, job.every_s, job.assumed.save_s)
    spent.saving_s += stretch.saving_s
    return trained_s + stretch.trained_s, stretch.unsaved_s


def _wait(spent: Spent, at_s: float, said: Answer, from_s: float, until_s: float) -> None:
    """Count the parts of ``said``, as far as they lie between ``from_s`` and ``until_s``."""
    noticed_s, replaced_s = at_s + said.noticed_s, at_s + said.noticed_s + said.hardware_s
    spent.noticing_s += _inside(at_s, noticed_s, from_s, until_s)
    spent.hardware_s += _inside(noticed_s, replaced_s, from_s, until_s)
    spent.restarting_s += _inside(replaced_s, replaced_s + said.restart_s, from_s, until_s)


def _inside(begin_s: float, end_s: float, from_s: float, until_s: float) -> float:
    return max(0.0, min(end_s, until_s) - max(begin_s, from_s))
