"""``--standby``: how many spare workers, and what speaks against them."""

from collections.abc import Sequence
from pathlib import Path

from faultrun.cli.options.settings import Settings
from faultrun.cli.options.values import whole
from faultrun.cli.resolve.program import Program
from faultrun.frameworks import rehearse
from faultrun.model.spec import Framework, Simulation
from faultrun.model.standby import StandbyWish

_MOST = 1024
_HIDDEN = {
    Framework.MINDSPORE: (
        "MS_ROLE",
        "MS_SCHED_",
        "MS_NODE_ID",
        "MS_WORKER_NUM",
        "MS_COMPILER_CACHE_",
        "RANK_",
        "DEVICE_ID",
        "GROUP_INFO_FILE",
    )
}
"""MindSpore takes a process with these for a member of a cluster from its first operation on."""


def resolve_standby(
    settings: Settings,
    program: Program,
    framework: Framework,
    workers: int,
    simulation: Simulation | None,
) -> StandbyWish:
    """The wish before the first worker is started; memory is looked at when the time has come."""
    wanted = settings.read("standby", _number_or_word)
    if wanted == 0:
        return StandbyWish()
    argv = (*program.command.prefix, *program.command.script_args)
    begins = rehearse.program_at(argv)
    against: list[str] = []
    if not begins:
        against.append(f"{argv[0]} is no Python command that a standby can wait in")
    if simulation is not None:
        against.append("a dry run is not restarted in a hurry")
    if wanted is None and not against:
        search: Sequence[Path] = program.search
        against += rehearse.doubts(program.source, search, framework)
    if against:
        return StandbyWish(asked=wanted is not None, doubts=tuple(against))
    return StandbyWish(
        count=workers if wanted is None else min(wanted, workers),
        asked=wanted is not None,
        framework=framework.value,
        program_at=begins,
        arguments_at=begins + (2 if argv[begins] in ("-m", "-c") else 1),
        hidden=_HIDDEN.get(framework, ()),
        estimate_bytes=rehearse.ESTIMATES_BYTES.get(framework, 0),
    )


def _number_or_word(text: str) -> int | None:
    """``none`` is 0, ``auto`` is None."""
    word = text.strip().lower()
    if word == "auto":
        return None
    if word == "none":
        return 0
    try:
        return whole(0, _MOST)(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither none, auto nor a number from 0 to {_MOST}") from None
