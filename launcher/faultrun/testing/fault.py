"""What shall happen, to whom and when: values, and the text that describes them.

    FAULTS  = FAULT [";" FAULT ...]
    FAULT   = KIND ":" KEY "=" VALUE ["," KEY "=" VALUE ...]

KIND is one of ``FaultKind``. Keys: ``rank`` (a number, or ``*``), ``step`` (global; without it the first
time), ``phase`` (startup, compile, step, save, saved; default step), ``life`` (the incarnation, default 0, or
``*``), ``value`` (exit code, seconds or MiB, whatever the kind needs).

    kill:rank=1,step=50
    exit:rank=0,phase=startup,value=3;slow:rank=*,phase=save,value=30,life=*

``random:seed=7,mean=20,kinds=kill+raise+exit,lives=30`` strikes once in each
of the first 30 lives: some rank, some kind, after 1 to 2 x mean steps of that life.
"""

import random
from dataclasses import dataclass
from enum import Enum

CHAOS_VARIABLE = "FAULTRUN_CHAOS"


class FaultKind(Enum):
    """What is done to the process."""

    KILL = "kill"  # SIGKILL
    SEGV = "segv"  # a real memory fault
    STOP = "stop"  # SIGSTOP
    SPIN = "spin"  # busy for ever, holding the GIL most of the time
    SLEEP = "sleep"  # asleep for ``value`` seconds, default for ever
    RAISE = "raise"  # an exception
    EXIT = "exit"  # leave with exit code ``value``, default 0
    OOM = "oom"  # eat memory until the kernel (limited cgroup) or the allocator (rlimit) ends it
    TORN = "torn"  # cut the file that was just saved in half, then SIGKILL
    SLOW = "slow"  # delay by ``value`` seconds, default 5
    DISK = "disk"  # fill the small file system that the save goes to
    LOG = "log"  # every later write to stdout and stderr finds no room


class Trigger(Enum):
    """Where the script is (phase)."""

    STARTUP = "startup"
    COMPILE = "compile"
    STEP = "step"
    SAVE = "save"  # about to write a checkpoint
    SAVED = "saved"  # it was just written; for ``torn``


class BadFault(ValueError):
    """The text does not describe a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """None stands for any rank, the first step that comes, any life."""

    kind: FaultKind
    rank: int | None = None
    step: int | None = None
    phase: Trigger = Trigger.STEP
    life: int | None = 0
    value: float | None = None

    def hits(self, rank: int, life: int, phase: Trigger, step: int | None) -> bool:
        """Whether this is its rank, life and moment."""
        return (
            self.phase is phase
            and self.rank in (None, rank)
            and self.life in (None, life)
            and (self.step is None or self.step == step)
        )

    @property
    def text(self) -> str:
        """The fault as the text that ``parse`` reads."""
        fields = {
            "rank": "*" if self.rank is None else self.rank,
            "step": self.step,
            "phase": self.phase.value,
            "life": "*" if self.life is None else self.life,
            "value": None if self.value is None else f"{self.value:g}",
        }
        return f"{self.kind.value}:" + ",".join(f"{k}={v}" for k, v in fields.items() if v is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomFaults:
    """One fault in each of the first ``lives``, drawn from ``seed``: the same for all ranks."""

    seed: int
    mean: int = 20
    kinds: tuple[FaultKind, ...] = (FaultKind.KILL, FaultKind.RAISE, FaultKind.EXIT)
    lives: int = 1

    def strikes(self, life: int, world_size: int) -> tuple[InjectedFault, int] | None:
        """The fault of ``life``, and after how many steps of it; None when there is none."""
        if life >= self.lives:
            return None
        draw = random.Random(f"{self.seed}/{life}")
        kind = draw.choice(self.kinds)
        value = float(draw.randint(1, 60)) if kind is FaultKind.EXIT else None
        fault = InjectedFault(kind=kind, rank=draw.randrange(world_size), life=life, value=value)
        return fault, draw.randint(1, 2 * max(1, self.mean))


def parse(text: str) -> tuple[tuple[InjectedFault, ...], RandomFaults | None]:
    """The faults that ``text`` names, and the random ones. BadFault says what is wrong."""
    faults: list[InjectedFault] = []
    chance: RandomFaults | None = None
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, _, rest = part.partition(":")
        try:
            fields = dict(map(_key_and_value, filter(None, rest.split(","))))
            if name == "random":
                chance = _random(fields)
            else:
                faults.append(_fault(name, fields))
        except ValueError as error:
            raise BadFault(f"{part!r}: {error}") from None
        if fields:
            raise BadFault(f"{part!r}: unknown {', '.join(sorted(fields))}")
    return tuple(faults), chance


def _key_and_value(field: str) -> tuple[str, str]:
    key, equals, value = field.partition("=")
    if not equals:
        raise ValueError(f"{field!r} is no key=value")
    return key.strip(), value.strip()


def _fault(name: str, fields: dict[str, str]) -> InjectedFault:
    """Takes what it knows out of ``fields``."""
    step, value = fields.pop("step", ""), fields.pop("value", "")
    rank, life = fields.pop("rank", "*"), fields.pop("life", "0")
    return InjectedFault(
        kind=FaultKind(name),
        rank=None if rank == "*" else int(rank),
        step=int(step) if step else None,
        phase=Trigger(fields.pop("phase", Trigger.STEP.value)),
        life=None if life == "*" else int(life),
        value=float(value) if value else None,
    )


def _random(fields: dict[str, str]) -> RandomFaults:
    kinds = fields.pop("kinds", "kill+raise+exit").split("+")
    numbers = {key: int(fields.pop(key)) for key in ("mean", "lives") if key in fields}
    return RandomFaults(
        seed=int(fields.pop("seed", "1")), kinds=tuple(FaultKind(kind) for kind in kinds), **numbers
    )
