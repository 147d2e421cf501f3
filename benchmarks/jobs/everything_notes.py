"""What a rank of ``everything_*.py`` tells, and how a fault is ordered from it. Standard library only.

An order is a file ``orders/RANK_NUMBER.json``: an object with ``kind`` and ``value`` as ``faultrun.testing``
has them, ``trigger``, where in the script it is due, and ``above``, the incarnation behind which it is.
"""

import json
import mmap
import os
import re
import struct
import subprocess
import sys
import threading
import time
import zipfile
from contextlib import suppress
from pathlib import Path

from faultrun.testing.fault import FaultKind, InjectedFault, Trigger
from faultrun.testing.inject import strike

INSIDE = "inside"
"""Between the gradients and the update: no phase of the kit, whose faults are done there all the same."""

DEVICE = "device"
"""An order of its own: what torch says of a device that is broken."""

HANDED, CONFIGURED = "--pre_trained=", "--config="
PAGE = "<dd"
"""When a process was born, and when it ran last."""

_BEAT_S = 0.01
_LIVES = ("FAULTRUN_INCARNATION", "TORCHELASTIC_RESTART_COUNT")
_SAYS_ECC = "CUDA error: uncorrectable ECC error encountered"
_STEP = re.compile(r"step[-_](\d+)")


def boot_s() -> float:
    """CLOCK_BOOTTIME, which all hosts of a campaign share."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Ledger:
    """What this process did, a line each, and the page that shows when it ran last: 100 times a second."""

    def __init__(self, folder: Path, kind: str, life: int) -> None:
        rank, node = int(os.environ["RANK"]), os.uname().nodename
        name = f"{life}_{rank}_{os.getpid()}_{node}"
        self.life = life
        """Where it is now: a survivor goes on into later ones."""
        self._about = {"rank": rank, "node": node, "pid": os.getpid()}
        page = os.open(folder / f"{name}.{kind}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(page, struct.pack(PAGE, boot_s(), boot_s()))
        self._page = mmap.mmap(page, struct.calcsize(PAGE))
        threading.Thread(target=self._beat, daemon=True).start()
        self._fd = os.open(folder / f"{name}.notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, what: str, step: int, path: str = "") -> None:
        """One line in one write."""
        line = {"at_s": boot_s(), "life": self.life, **self._about, "what": what, "step": step, "path": path}
        os.write(self._fd, (json.dumps(line) + "\n").encode())

    def _beat(self) -> None:
        while True:
            self._page[8:] = struct.pack("<d", boot_s())
            time.sleep(_BEAT_S)


class Notes:
    """Everything that this rank says, and hears."""

    def __init__(self, folder: Path) -> None:
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.everyone = " ".join(map(str, range(self.world)))
        self.life = int(next(filter(None, map(os.environ.get, _LIVES)), 0))
        self._told, self._orders = folder / "told", folder / "orders"
        self._finish = folder / "finish", folder / "finish_at"
        self._ledger: Ledger | None = None

    def born(self, *, child: bool = True) -> None:
        """This process trains from here on: a page of its own, and a child that it would leave behind."""
        self._ledger = Ledger(self._told, "rank", life=self.life)
        if not child:
            return
        left = subprocess.Popen(["sleep", "86400"], start_new_session=True, stdin=subprocess.DEVNULL)
        self.note("child", left.pid)

    @property
    def is_born(self) -> bool:
        """Whether it has said so."""
        return self._ledger is not None

    def note(self, what: str, step: int, text: str = "") -> None:
        """One line."""
        assert self._ledger is not None, "nobody is born yet"
        self._ledger.note(what, step, text)

    def moves(self, life: int) -> None:
        """A survivor is in the next incarnation."""
        self.life = life
        assert self._ledger is not None, "nobody is born yet"
        self._ledger.life = life

    def begins(self, step: int, there: int) -> None:
        """Where this rank goes on, and the newest step that is whole on the disk; -1: none."""
        self.note("there", there)
        self.note("begin", step, self.everyone)

    def at(self, trigger: str, path: str = "") -> None:
        """The script is there: if something is due, it befalls this process now."""
        for order in sorted(self._orders.glob(f"{self.rank}_*.json")):
            with suppress(OSError, ValueError):
                self._obey(order, trigger, path)

    def _obey(self, file: Path, trigger: str, path: str) -> None:
        order = json.loads(file.read_text())
        if order["trigger"] != trigger or self.life <= order["above"]:
            return
        file.replace(file.with_suffix(".done"))  # it is ours, and is done once
        self.note("struck", int(file.stem.partition("_")[2]), f"{order['kind']} in {trigger}")
        if order["kind"] == DEVICE:
            sys.exit(_SAYS_ECC)
        fault = InjectedFault(kind=FaultKind(order["kind"]), phase=Trigger.STEP, value=order.get("value"))
        self._befalls(fault, trigger, path)

    def _befalls(self, fault: InjectedFault, trigger: str, path: str) -> None:
        try:
            strike(fault, f"in {trigger}", path)
        except ValueError as error:  # would be taken for an order that cannot be read
            raise RuntimeError(str(error)) from error

    def ends_at(self, step: int) -> bool:
        """Whether this was the last step. Rank 0 says so some steps before, and nobody is further by then."""
        wanted, at = self._finish
        if self.rank == 0 and wanted.exists() and not at.exists():
            partial = at.with_suffix(".tmp")
            partial.write_text(str(step + 3))
            partial.replace(at)
        with suppress(OSError, ValueError):
            return step >= int(at.read_text())
        return False


def drop_old(folder: Path, keep: int) -> None:
    """Drop all but the newest few periodic saves."""
    for old in sorted(folder.glob("step-*.pt"), key=step_of)[:-keep]:
        for path in folder.glob(f"{old.name}*"):
            path.unlink(missing_ok=True)


def step_of(path: Path) -> int:
    """The step in a name; -1: none."""
    found = _STEP.findall(path.name) or _STEP.findall(path.parent.name)
    return int(found[-1]) if found else -1


def newest_whole(folder: Path, parts: int) -> int:
    """The newest step of which ``parts`` ranks have a file of torch that is whole, or DCP a folder; -1.

    The folders of one rank end with its number: its own saves lie in one, its dying gasps in another. Parts
    of two lives are no state, though both passed the step.
    """
    there: dict[tuple[int, object], set[str]] = {}
    there_are = (Path(at, name) for at, _, names in os.walk(folder) for name in names)  # others write here
    for path in there_are:
        if path.suffix == ".pt" and not path.name.startswith(".") and _is_whole(path):
            life = _life_of(path) if parts > 1 else None
            there.setdefault((step_of(path), life), set()).add(path.parent.name.rpartition("_")[2])
    complete = [step for (step, _), ranks in there.items() if len(ranks) >= parts]
    return max((*complete, *(step_of(mark) for mark in folder.rglob("step[-_]*/.metadata"))), default=-1)


def _life_of(path: Path) -> object:
    """The incarnation in which the SDK saved it; None: nothing tells."""
    with suppress(OSError, ValueError):
        return json.loads(path.with_name(f"{path.name}.manifest.json").read_text()).get("incarnation")
    return None


def _is_whole(path: Path) -> bool:
    with suppress(OSError, zipfile.BadZipFile, zipfile.LargeZipFile), zipfile.ZipFile(path) as file:
        return file.testzip() is None
    return False


def handed() -> str:
    """The checkpoint that a launcher has put behind the script, or into its configuration; empty: none."""
    path = _word(CONFIGURED)
    if path:
        found = re.search(r"^pre_trained: *['\"]?([^'\"#\n]*)", Path(path).read_text(), re.MULTILINE)
        return found[1].strip() if found else ""
    return _word(HANDED)


def _word(option: str) -> str:
    return next((word.removeprefix(option) for word in reversed(sys.argv) if word.startswith(option)), "")
