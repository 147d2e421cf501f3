"""What would let a training come through better: options of its configuration file, as a diff. Pure."""

import difflib
import os
import re
from collections.abc import Iterable, Sequence

from faultrun.adopt.launch import AdoptedOption
from faultrun.adopt.proposal import yaml_value
from faultrun.rehearse.outcome import Ailment, RehearsalOutcome

_HANDS_OVER = frozenset({"recipe", "resume_arg", "rewrite"})
_NO_END = "\\ No newline at end of file\n"


def wanted_options(
    found: RehearsalOutcome, read: Iterable[AdoptedOption], folder: str
) -> tuple[AdoptedOption, ...]:
    """The options that answer what was found wrong.

    ``read`` are those that imports and options of the script speak for. ``folder`` is the working directory:
    paths in it are written as seen from there.
    """
    ailments, wanted = set(found.ailments), []
    folders = tuple(_seen_from(folder, one) for one in found.undisturbed.elsewhere)
    told = {one.name: one for one in read}
    if Ailment.SAVES_ELSEWHERE in ailments and "recipe" not in told:
        wanted.append(AdoptedOption(name="checkpoint_dir", values=folders, read="where it saved"))
    if ailments & {Ailment.BEGINS_ANEW, Ailment.NOT_TOLD, Ailment.SAVES_ELSEWHERE}:
        wanted += [one for name, one in told.items() if name in _HANDS_OVER]
    if Ailment.FREEZE_UNSEEN in ailments:
        wanted.append(AdoptedOption(name="hang_signal", values=("log",), read="a frozen rank is noticed"))
    return tuple(wanted)


def with_options(text: str, options: Sequence[AdoptedOption]) -> str:
    """The text of a configuration file with ``options`` set: the line of each replaced, or put at the end."""
    if (rows := text.splitlines(keepends=True)) and not rows[-1].endswith("\n"):
        rows[-1] += "\n"
    for one in options:
        line = f"{one.name}: {yaml_value(one.values, one.name)}  # {one.read}\n"
        spelled = re.compile(rf"{one.name.replace('_', '[_-]')}\s*:")
        at = next((number for number, old in enumerate(rows) if spelled.match(old)), None)
        if at is None:
            rows.append(line)
        else:
            end = next((n for n in range(at + 1, len(rows)) if not rows[n].startswith((" ", "-"))), len(rows))
            rows[at:end] = [line]
    return "".join(rows)


def as_diff(name: str, before: str | None, after: str) -> str:
    """A unified diff for ``git apply`` and ``patch -p1``; ``before`` is None for a file that is not there."""
    old, new = ((text or "").splitlines(keepends=True) for text in (before, after))
    origin = "/dev/null" if before is None else f"a/{name}"
    lines = difflib.unified_diff(old, new, fromfile=origin, tofile=f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_END}" for line in lines)


def _seen_from(folder: str, path: str) -> str:
    inside = f"{folder.rstrip('/')}/"
    return path[len(inside) :] if path.startswith(inside) else os.path.normpath(path)
