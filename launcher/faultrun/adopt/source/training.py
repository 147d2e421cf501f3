"""Where a training saves and how it resumes, by what its source calls: ``torch.save``, ``load_checkpoint``.

Each answer carries the line it was read from; what only a run could tell is named and not guessed.
"""

import ast
import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from faultrun.adopt.launch import Remark
from faultrun.adopt.source.checkpoint_calls import CallOfPath, loading_calls, saving_calls
from faultrun.adopt.source.hand_over import (
    HandOver,
    by_condition,
    loaded_by_itself,
    named_hand_overs,
    traced_hand_overs,
)
from faultrun.adopt.source.python_code import PythonModule
from faultrun.adopt.source.trace import ValueTracer
from faultrun.adopt.source.traced import OriginKind, Traced

_FILLED = re.compile(r"(?:[\w./:=,+@-]|\$[A-Za-z_0-9]\w*|\$\{\w+\})+")
_NAMES = re.compile(r"\$\{?(\w+)")
_ASKS = re.compile(r"FAULTRUN_RESUME|RESTORE_RANKS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Saves:
    """A folder of checkpoints and where that is written."""

    folder: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedFolder:
    """What was typed for a folder of checkpoints and only a shell can fill in, as ``--out`` is ``$HOME/out``.

    ``folder`` is what a shell makes into the folder; "" where nobody can tell how that would be written.
    ``named``: all its variables are there where the command stands.
    """

    option: str
    typed: str
    folder: str = ""
    named: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What the source tells. ``own``: where it loads a checkpoint that it finds by itself; "" if it does not.

    ``asks``: it reads faultrun's variables, or uses the SDK to resume. ``condition``: what has to be said to
    it, so that it loads, where nobody can tell how that is said.
    """

    saves: tuple[Saves, ...] = ()
    typed: tuple[TypedFolder, ...] = ()
    hand_over: HandOver | None = None
    others: tuple[HandOver, ...] = ()
    own: str = ""
    asks: bool = False
    uses_sdk: bool = False
    loads: tuple[str, ...] = ()
    missing: tuple[Remark, ...] = ()
    condition: Remark | None = None


def read_training(tracer: ValueTracer, texts: Callable[[PythonModule], str]) -> Training:
    """Look through the program; ``texts`` is the source of a module."""
    code = tracer.code
    saves, typed, origins, missing = _saves(tracer)
    loads = list(loading_calls(code))
    hand_overs = traced_hand_overs(tracer, loads, origins)
    condition, by_word = (None, []) if hand_overs else by_condition(code, loads)
    known = {one.origin.name for one in (*hand_overs, *by_word)}
    hand_overs = [*hand_overs, *by_word, *named_hand_overs(tracer, known | origins)]
    uses_sdk = any(one.startswith("faultrun") for module in code.modules for one in module.imports.values())
    resumes = any(_is_sdk_resume(call) for module in code.modules for call in module.calls)
    asks = any(_ASKS.search(texts(module)) for module in code.modules) or (uses_sdk and resumes)
    by_itself = not hand_overs and condition is None
    folders = [*(one.folder for one in saves), *(one.folder for one in typed if one.folder)]
    own = loaded_by_itself(tracer, loads, folders) if by_itself else ""
    return Training(
        saves=saves,
        typed=typed,
        hand_over=hand_overs[0] if hand_overs else None,
        others=tuple(hand_overs[1:]),
        own=own,
        asks=asks,
        uses_sdk=uses_sdk,
        loads=tuple(f"{one.where} {one.name}" for one in loads),
        missing=missing,
        condition=None if hand_overs else condition,
    )


def where_variables_are(training: Training, has: Callable[[str], bool]) -> Training:
    """The same with the folders marked of which the shell ``has`` every variable."""
    typed = (
        replace(one, named=bool(one.folder) and all(map(has, _NAMES.findall(one.folder))))
        for one in training.typed
    )
    return replace(training, typed=tuple(typed))


def _saves(
    tracer: ValueTracer,
) -> tuple[tuple[Saves, ...], tuple[TypedFolder, ...], frozenset[str], tuple[Remark, ...]]:
    """The folders, the options and keys that they come from, and what cannot be told where there is none.

    Where a word was typed that only a shell can fill in, no default counts in its place.
    """
    found: dict[str, Saves] = {}
    typed: dict[str, TypedFolder] = {}
    origins: set[str] = set()
    missing: list[Remark] = []
    for one in saving_calls(tracer.code):
        values = tracer.values(one.path, one.module)
        if any("BytesIO" in value.unknown for value in values):
            continue  # into memory, not into a file
        origins.update(origin.name for value in values for origin in value.origins if value.alone)
        by_shell = [value for value in values if value.typed]
        for value in by_shell:
            known = _typed_folder(tracer, one, value)
            typed.setdefault(f"{known.option} {known.typed} {known.folder}", known)
        for value in values if not by_shell else ():
            folder = value.folder if one.file else value.directory
            if folder:
                plain = posixpath.normpath(folder)
                found.setdefault(plain, Saves(folder=plain, where=value.where or one.where))
        if not any(value.text or value.typed for value in values):
            missing.append(_cannot_tell(one, values))
    told = bool(found or typed)
    return tuple(found.values()), tuple(typed.values()), frozenset(origins), () if told else tuple(missing)


def _typed_folder(tracer: ValueTracer, one: CallOfPath, value: Traced) -> TypedFolder:
    folder = value.folder if one.file else value.directory
    named = next((origin for origin in value.origins if origin.kind is not OriginKind.KEY), None)
    name = named.name if named is not None else one.name
    declared = tracer.code.option(name)
    option = declared.spelled if declared is not None and declared.spelled else f"--{name}"
    if named is None or named.kind is OriginKind.VARIABLE:
        option = name
    begins = folder.startswith(value.typed) or value.typed.startswith(folder)
    plain = begins and _FILLED.fullmatch(folder) is not None
    return TypedFolder(option=option, typed=value.typed, folder=folder.rstrip("/") if plain else "")


def _cannot_tell(one: CallOfPath, unknown: Sequence[Traced]) -> Remark:
    what = f"{one.where} calls {one.name}(... {ast.unparse(one.path)})"
    options = [origin for value in unknown for origin in value.origins if origin.kind is OriginKind.OPTION]
    if options:
        why = f"--{options[0].name} is not given and has no default ({options[0].where})"
        return Remark(what=what, why=why)
    said = next((value.unknown for value in unknown if value.unknown), "")
    return Remark(what=what, why=f"only a run could tell {said}" if said else "the path is empty")


def _is_sdk_resume(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "resume"
