"""What each rank tells of a step when nothing happens: computed, or told by a training left alone."""

import json
import tempfile
from functools import cache
from pathlib import Path

from benchmarks.campaigns.everything_judge import Law, Right
from benchmarks.campaigns.everything_plan import Setting
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import BARE, Job
from benchmarks.jobs import everything_numbers as numbers
from benchmarks.jobs.small_state import State, gradient

EXACT_STEPS = 4000
_ALONE_S = 900.0


@cache
def law_of(setting: Setting) -> Law:
    """Of this training."""
    if setting.small:
        return _of_plain(setting.ranks)
    if setting.exact:
        return _of_undisturbed(setting)
    return _of_mindspore(setting.ranks) if setting.code == "mindspore" else _of_torch(setting)


def _of_torch(setting: Setting) -> Law:
    truth, world = numbers.Truth(setting.ranks), setting.ranks
    shards = world if setting.code == "fsdp" else 1

    @cache
    def law(step: int, rank: int) -> Right:
        part = rank if shards > 1 else 0
        weights, momentum = (numbers.share_of(one, part, shards) for one in truth.after(step))
        samples = [one for own in range(world) for one in numbers.samples_of(step, own, world)]
        total = sum(float(abs(one).sum()) for one in weights)
        digest = numbers.digest(weights, momentum)
        return Right(digest, truth.loss(step, rank), total, tuple(samples))

    return law


def _of_mindspore(world: int) -> Law:
    sums = numbers.Sums(world)

    @cache
    def law(step: int, rank: int) -> Right:
        sample = (step - 1) % numbers.STEPS_AN_EPOCH * world + rank
        loss = float((sums.after(step - 1).astype("float64") * numbers.row(sample)).sum())
        return Right(numbers.digest([sums.after(step)], []), loss, 0.0, ())

    return law


def _of_plain(world: int) -> Law:
    state, weights = State(), [1]

    def law(step: int, rank: int) -> Right:
        del rank
        while len(weights) <= step:
            state.update(sum(gradient(state.step + 1, one) for one in range(world)))
            weights.append(state.weight)
        return Right(f"{weights[step]:x}", 0.0, 0.0, ())

    return law


def _of_undisturbed(setting: Setting) -> Law:
    """Train without a launcher and without a fault, so many steps. RuntimeError: it failed."""
    with tempfile.TemporaryDirectory(prefix="undisturbed-") as name:
        folder = Path(name)
        for own in ("told", "orders", "ckpt"):
            (folder / own).mkdir()
        (folder / "finish_at").write_text(str(EXACT_STEPS))
        script = str(ROOT / "benchmarks" / "jobs" / "everything_exact.py")
        program = (script, setting.code, "alone", str(folder), "0")
        with Launched(BARE.command(Job(workers=setting.ranks, program=program)), folder, {}) as run:
            if run.wait_for_the_end(within_s=_ALONE_S):
                raise RuntimeError(f"the undisturbed training {setting.code} failed: {run.console[-300:]}")
        lines = [json.loads(line) for path in folder.glob("told/*.notes") for line in path.open()]
    told = {(one["step"], one["rank"]): one["path"].split() for one in lines if one["what"] == "step"}
    rights = {key: Right(digest, float(loss), 0.0, ()) for key, (digest, loss) in told.items()}
    return lambda step, rank: rights[step, rank]
