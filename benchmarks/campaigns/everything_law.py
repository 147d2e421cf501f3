"""What each rank tells of a step when nothing happens: computed, not measured."""

from functools import cache

from benchmarks.campaigns.everything_judge import Law, Right
from benchmarks.campaigns.everything_plan import Setting
from benchmarks.jobs import everything_numbers as numbers


@cache
def law_of(setting: Setting) -> Law:
    """Of this training."""
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
