"""Which training codes meet which faults under which launchers: the cells of the matrix. Values only."""

import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path

from benchmarks.harness.launched import ROOT, clean_environ
from benchmarks.harness.launchers import LOG_DIR

WORKERS = 2
OUTPUT = "out"
_EXAMPLES = ROOT / "examples"


class Fault(Enum):
    """A column: what is done to a training."""

    NONE = "undisturbed"
    KILL = "kill"
    SAVE = "save"
    TORN = "torn"
    STOP = "stop"


HEADINGS: Mapping[Fault, str] = {
    Fault.NONE: "undisturbed",
    Fault.KILL: "SIGKILL of a rank",
    Fault.SAVE: "SIGKILL during a save",
    Fault.TORN: "newest checkpoint torn, same command again",
    Fault.STOP: "SIGTERM, same command again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A training: how many steps, how often it saves, how long it sleeps in a step so that it can be met."""

    steps: int
    save_every: int
    step_s: float


_SHORT = Size(steps=40, save_every=10, step_s=0.05)
_LONG = Size(steps=400, save_every=10, step_s=0.05)
"""Standbys import the framework beside the training, which must not be over before they have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One example: ``options`` make faultrun resume it, ``checkpoints`` is what it saves below its output.

    ``distributions`` are what must be installed, and whose versions count.
    ``environ`` is what it needs besides, where it is installed by itself.
    """

    name: str
    script: Path
    options: tuple[str, ...]
    checkpoints: str
    distributions: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def stamp(self) -> str:
        """Changes with the example's source: what was measured with another is not its row any more."""
        sources = sorted(self.script.parent.glob("*.py"))
        return f"{zlib.crc32(b''.join(path.read_bytes() for path in sources)):08x}"

    def program(self, size: Size) -> tuple[str, ...]:
        """The script and its arguments, the same under every launcher and at every start."""
        named = {"output_dir": OUTPUT, **asdict(size)}
        return (str(self.script), *(f"--{name}={value}" for name, value in named.items()), *self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A launcher, and where the output of rank 0 lies: one file a life."""

    name: str
    size: Size
    lives: str
    faults: tuple[Fault, ...]
    environ: Mapping[str, str] = field(default_factory=dict, hash=False)
    ours: bool = False
    standbys: bool = False

    def command(self, code: Code) -> tuple[str, ...]:
        """The words that start, and start again, a training of this code."""
        program = code.program(self.size)
        if not self.ours:
            kept = (f"--log-dir={LOG_DIR}", "--redirects=3")
            torchrun = ("torch.distributed.run", "--standalone", f"--nproc-per-node={WORKERS}")
            return (sys.executable, "-m", *torchrun, "--max-restarts=3", *kept, *program)
        standbys = f"--standby={WORKERS if self.standbys else 'none'}"
        faultrun = ("faultrun", f"--worker_num={WORKERS}", "--max_restarts=3", f"--log_dir={LOG_DIR}")
        return (sys.executable, "-m", *faultrun, standbys, *code.options, *program)


_OURS = f"{LOG_DIR}/incarnation_*/worker_0.log"
_TORCHRUNS = f"{LOG_DIR}/*/attempt_*/0/stdout.log"
FAULTRUN = Contender(name="faultrun", size=_SHORT, lives=_OURS, faults=tuple(Fault), ours=True)
_KILLS = (Fault.KILL, Fault.SAVE)
STANDBYS = replace(FAULTRUN, name="faultrun, standbys", size=_LONG, faults=_KILLS, standbys=True)
TORCHRUN = Contender(
    name="torchrun",
    size=_SHORT,
    lives=_TORCHRUNS,
    faults=tuple(Fault),
    environ={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},  # without it many restarts hang: results/warm.md
)
YARDSTICK = replace(TORCHRUN, name="torchrun, long", size=_LONG, faults=(Fault.NONE,))
"""What the runs with standbys must end like; it has no row of its own."""

CONTENDERS = (FAULTRUN, STANDBYS, TORCHRUN)


def _example(
    name: str, script: str, checkpoints: str, *distributions: str, environ: Mapping[str, str] | None = None
) -> Code:
    return Code(
        name=name,
        script=_EXAMPLES / script,
        options=(f"--recipe={name}",),
        checkpoints=checkpoints,
        distributions=("torch", *distributions),
        environ=environ or {},
    )


_DEEPSPEED = ROOT / ".codes" / "deepspeed"
_WITH_DEEPSPEED = {
    "PYTHONPATH": f"{clean_environ()['PYTHONPATH']}{os.pathsep}{_DEEPSPEED}",
    "PATH": f"{_DEEPSPEED / 'bin'}{os.pathsep}{clean_environ()['PATH']}",
    "TORCH_EXTENSIONS_DIR": str(_DEEPSPEED.with_name("extensions")),
}
"""Where ``make deepspeed`` puts it."""

CODES = (
    _example(
        "transformers", "09_transformers_trainer/train.py", "checkpoint-*", "transformers", "accelerate"
    ),
    _example("accelerate", "10_accelerate/train.py", "checkpoint-*", "accelerate"),
    _example("lightning", "11_lightning/train.py", "periodic/*.ckpt", "lightning"),
    _example("fabric", "11_lightning/fabric.py", "step=*.ckpt", "lightning"),
    _example("dcp", "12_fsdp2_dcp/train.py", "step-*"),
    _example("deepspeed", "13_deepspeed/train.py", "global_step*", "deepspeed", environ=_WITH_DEEPSPEED),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One attempt to be made; ``round`` counts from 0."""

    code: Code
    fault: Fault
    contender: Contender
    round: int = 0

    @property
    def number(self) -> tuple[str, str, str, int]:
        """Which one it is."""
        return self.code.name, self.fault.value, self.contender.name, self.round


def cells(
    codes: Sequence[Code], faults: Sequence[Fault], contenders: Sequence[Contender], *, rounds: int
) -> Iterator[Cell]:
    """Every cell; the kill in ``rounds`` rounds, as it is timed, and launchers in changing order.

    First what the others are compared with: torchrun's undisturbed run of the same length.
    """
    for code in codes:
        for yardstick in dict.fromkeys(_like(contender) for contender in contenders):
            yield Cell(code=code, fault=Fault.NONE, contender=yardstick)
        for turn, fault in enumerate(faults):
            for number in range(rounds if fault is Fault.KILL else 1):
                for contender in contenders if (turn + number) % 2 else tuple(reversed(contenders)):
                    if fault in contender.faults and (fault, contender) != (Fault.NONE, TORCHRUN):
                        yield Cell(code=code, fault=fault, contender=contender, round=number)


def _like(contender: Contender) -> Contender:
    return TORCHRUN if contender.size == TORCHRUN.size else YARDSTICK
