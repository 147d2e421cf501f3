"""What the program imports at its top, imported before its turn; and whether that made another process of it.

An import may do anything. What it would do in a fresh worker too is left as it is: hooks, handlers,
callbacks at exit, a variable that it adds, threads of a library that Python does not know (BLAS). What a
program could tell from a fresh worker leads to a standby that has imported the framework alone (Plainer).
"""

import contextlib
import importlib.util
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .process_state import ProcessState, fds, shadowed
from .rehearsal import file_of

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_VARY = ("FAULTRUN_", "MASTER_", "MS_SCHED_", "RESTORE_RANKS", "TORCHELASTIC_")
"""What is another in each incarnation begins so."""


class Plainer(Exception):
    """The imports must be left to the program; the text says why."""


class ProgramImports:
    """``statements`` in their order. ``sets``: the variables that the program sets once it runs."""

    def __init__(self, statements: Sequence[str], sets: Sequence[str]) -> None:
        self._statements = statements
        self._sets = frozenset(sets)
        self._read: set[str] = set()
        self._files: dict[str, tuple[int, ...]] = {}

    @property
    def packages(self) -> tuple[str, ...]:
        """What has been imported, by its top name."""
        return tuple(top for top in self._files if top in sys.modules)

    def load(self, before: frozenset[str]) -> None:
        """Run the statements; ``before`` are the modules that Python had at first. Plainer."""
        if not self._statements:
            return
        state = ProcessState.now()
        for statement in self._statements:
            top = statement.split()[1].partition(".")[0]
            if _is_installed(top):
                self._run(statement)
                self._files[top] = file_of(top)
        if names := shadowed(before):
            raise Plainer(f"the program has its own {' '.join(names)}, which was imported from elsewhere")
        if found := _done_to(state):
            raise Plainer(f"its imports {found}")
        telling = sorted(self._read & self._sets) or sorted(
            name for name in self._read if name.startswith(_VARY)
        )
        if telling:
            raise Plainer(f"its imports read {telling[0]}, which is another later")

    def stale(self, changed: Mapping[str, str], unset: Sequence[str]) -> str:
        """What is another by now than it was for the imports; "" when nothing is."""
        if read := sorted(self._read & {*changed, *unset}):
            return f"{read[0]}, which the program's imports have read, has changed"
        other = sorted(top for top, file in self._files.items() if file_of(top) != file)
        return f"{other[0]} was changed on the disk" if other else ""

    def _run(self, statement: str) -> None:
        with _recorded(self._read):
            try:
                exec(compile(statement, "<standby>", "exec"), {"__name__": "standby"})
            except ImportError as error:
                sys.stderr.write(f"{statement}: {error}\n")  # the program will find the same
            except (Exception, SystemExit) as error:  # a package's import may raise anything
                raise Plainer(f"`{statement}` raised {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _recorded(names: set[str]) -> Iterator[None]:
    """Note which variables are asked for by name; a walk over all of them, or setting one, is no question.

    ``os.environ`` passes each name through ``encodekey``, what it yields through ``decodekey``, and each
    value that is set through ``encodevalue``, just after its name.
    """
    environ: Any = os.environ  # typeshed's names of the three are not what they take
    watch = _Watch(names, environ.encodekey, environ.decodekey, environ.encodevalue)
    environ.encodekey, environ.decodekey, environ.encodevalue = watch.asked, watch.yielded, watch.set
    try:
        yield
    finally:
        environ.encodekey, environ.decodekey, environ.encodevalue = (
            watch.encode,
            watch.decode,
            watch.encode_value,
        )


class _Watch:
    def __init__(self, names: set[str], encode: Any, decode: Any, encode_value: Any) -> None:
        self.names = names
        self.encode, self.decode, self.encode_value = encode, decode, encode_value
        self._walk: deque[str] = deque()
        self._walked = self._new = ""

    def asked(self, name: str) -> object:
        encoded = self.encode(name)  # TypeError for bytes, which os.get_exec_path tries first
        if self._walk and self._walk[0] == name:  # dict(os.environ) lists all names and then asks for each
            self._walked = self._walk.popleft()
        elif name != self._walked:
            self._walk.clear()
        self._new = name if name != self._walked and name not in self.names else ""
        if self._new:
            self.names.add(name)
        return encoded

    def yielded(self, raw: bytes) -> object:
        name = str(self.decode(raw))
        self._walk.append(name)
        return name

    def set(self, value: str) -> object:
        self.names.discard(self._new)
        return self.encode_value(value)


def _done_to(before: ProcessState) -> str:
    """What the imports did that a worker could be told by."""
    if len(threading.enumerate()) > 1 or len(sys._current_frames()) > 1:
        return "started a thread"
    opened = fds() - before.fds
    if opened:
        return f"opened {_target(min(opened))}"
    if children():
        return "started a process"
    if os.getcwd() != before.folder:
        return "changed the folder"
    changed = sorted(name for name, value in before.environ.items() if os.environ.get(name) != value)
    if changed:
        return f"changed {changed[0]}"
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_initialized():
        return "use an accelerator"
    return ""


def children() -> list[int]:
    """Processes that this one has started."""
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
            found += map(int, file.read().split())
    return found


def _is_installed(top: str) -> bool:
    """Whether it is a package of the environment, and none that is being edited."""
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    origin = found.origin if found is not None else None
    return origin is not None and not _INSTALLED.isdisjoint(origin.split(os.sep))


def _target(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}").partition(":")[0]
    except OSError:
        return f"descriptor {fd}"
