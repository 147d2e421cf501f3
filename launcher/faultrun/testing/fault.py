"""What shall happen, to whom and when: values, and the text that describes them.

    FAULTS  = FAULT [";" FAULT ...]
    FAULT   = KIND ":" KEY "=" VALUE ["," KEY "=" VALUE ...]

KIND is one of ``Kind``. Keys: ``rank`` (a number, or ``*``), ``step`` (global;
without it the first time), ``phase`` (startup, compile, step, save, saved;
default step), ``life`` (the incarnation, default 0, or ``*``), ``value`` (exit code,
seconds or MiB, whatever the kind needs).

    kill:rank=1,step=50
    exit:rank=0,phase=startup,value=3;slow:rank=*,phase=save,value=30,life=*

``random:seed=7,mean=20,kinds=kill+raise+exit,lives=30`` strikes once in each
of the first 30 lives: some rank, some kind, after 1 to 2 x mean steps of that life.
"""

import random
from dataclasses import dataclass
from enum import Enum

VARIABLE = "FAULTRUN_CHAOS"


class Kind(Enum):
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
class Fault:
    """None stands for any rank, the first step that comes, any life."""

    kind: Kind
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
        """As ``parse`` reads it."""
        fields = {
            "rank": "*" if self.rank is None else self.rank,
            "step": self.step,
            "phase": self.phase.value,
            "life": "*" if self.life is None else self.life,
            "value": None if self.value is None else f"{self.value:g}",
        }
        return f"{self.kind.value}:" + ",".join(f"{k}={v}" for k, v in fields.items() if v is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Random:
    """One fault in each of the first ``lives``, drawn from ``seed``: the same for all ranks."""

    seed: int
    mean: int = 20
    kinds: tuple[Kind, ...] = (Kind.KILL, Kind.RAISE, Kind.EXIT)
    lives: int = 1

    def strikes(self, life: int, world_size: int) -> tuple[Fault, int] | None:
        """The fault of ``life``, and after how many steps of it; None when there is none."""
        if life >= self.lives:
            return None
        draw = random.Random(f"{self.seed}/{life}")
        kind = draw.choice(self.kinds)
        value = float(draw.randint(1, 60)) if kind is Kind.EXIT else None
        fault = Fault(kind=kind, rank=draw.randrange(world_size), life=life, value=value)
        return fault, draw.randint(1, 2 * self.mean)


def parse(text: str) -> tuple[tuple[Fault, ...], Random | None]:
    """The faults that ``text`` names, and the random ones. BadFault says what is wrong."""
    faults: list[Fault] = []
    chance: Random | None = None
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, _, rest = part.partition(":")
        fields = _fields(part, rest)
        if name == "random":
            chance = _random(part, fields)
        else:
            faults.append(_fault(part, name, fields))
    return tuple(faults), chance


def _fields(part: str, rest: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for field in filter(None, rest.split(",")):
        key, equals, value = field.partition("=")
        if not equals:
            raise BadFault(f"{part!r}: {field!r} is no key=value")
        fields[key.strip()] = value.strip()
    return fields


def _fault(part: str, name: str, fields: dict[str, str]) -> Fault:
    try:
        kind = Kind(name)
        phase = Trigger(fields.pop("phase", Trigger.STEP.value))
        rank, life = _maybe(fields.pop("rank", "*")), _maybe(fields.pop("life", "0"))
        step = fields.pop("step", "")
        value = fields.pop("value", "")
        fault = Fault(
            kind=kind,
            rank=rank,
            step=int(step) if step else None,
            phase=phase,
            life=life,
            value=float(value) if value else None,
        )
    except ValueError as error:
        raise BadFault(f"{part!r}: {error}") from None
    _nothing_left(part, fields)
    return fault


def _random(part: str, fields: dict[str, str]) -> Random:
    try:
        kinds = fields.pop("kinds", "")
        plain = Random(seed=int(fields.pop("seed", "1")))
        chance = Random(
            seed=plain.seed,
            mean=max(1, int(fields.pop("mean", plain.mean))),
            kinds=tuple(Kind(kind) for kind in kinds.split("+")) if kinds else plain.kinds,
            lives=int(fields.pop("lives", plain.lives)),
        )
    except ValueError as error:
        raise BadFault(f"{part!r}: {error}") from None
    _nothing_left(part, fields)
    return chance


def _nothing_left(part: str, left: dict[str, str]) -> None:
    if left:
        raise BadFault(f"{part!r}: unknown {', '.join(sorted(left))}")


def _maybe(text: str) -> int | None:
    return None if text == "*" else int(text)
