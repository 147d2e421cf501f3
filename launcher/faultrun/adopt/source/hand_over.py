"""How a script is told where to resume: the option or the configuration key whose value comes to a load."""

import ast
import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from faultrun.adopt.launch import Remark
from faultrun.adopt.source.checkpoint_calls import CallOfPath
from faultrun.adopt.source.python_code import PythonCode, PythonModule, ScriptOption
from faultrun.adopt.source.trace import ValueTracer
from faultrun.adopt.source.traced import Origin, OriginKind

_TAKES_PATH = re.compile(
    r"(?i)(^|_)(resume|restore|recover|ckpt|checkpoint|load|pre_?trained|init_from|start_from|snapshot|continue)"
)
_NOT_WHERE = re.compile(
    r"(?i)(save|out|dir$|dirs$|folder$|every|freq|interval|steps?$|epochs?$|num|max|keep|limit|iter|period|total"
    r"|workers?|url|strategy|format|prefix|dataset|data|precision|only|best|activation|gradient|use_|file_name)"
)
_RANKS = (
    "resume",
    "recover",
    "restore",
    "ckpt_path",
    "checkpoint",
    "ckpt",
    "snapshot",
    "load",
    "continue",
    "init",
    "start",
    "pre",
)
_USUAL_KEYS = ("pre_trained", "resume", "load_checkpoint", "checkpoint_path", "resume_ckpt")
_BY_FOLDER = 50
_SWITCHES = frozenset({"bool", "str2bool", "strtobool", "boolean", "int"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """How the script is told where to resume: an option of its own, or a key of its configuration.

    ``template`` is what follows the option, ``spelled`` the option with its dashes.
    """

    origin: Origin
    where: str
    spelled: str = ""
    template: str = "{checkpoint}"


def traced_hand_overs(
    tracer: ValueTracer, loads: Sequence[CallOfPath], saved: frozenset[str]
) -> list[HandOver]:
    """Options and keys by which a path comes to a call that loads, the best one first.

    What names the file that is ``saved`` too names no other one to load.
    """
    found: dict[str, tuple[int, HandOver]] = {}
    for one in loads:
        for value in tracer.values(one.path, one.module):
            for origin in value.origins:
                if (
                    origin.kind is OriginKind.VARIABLE
                    or not _means_resume(origin.name)
                    or origin.name in saved
                ):
                    continue
                made = _handed(tracer, origin, f"{one.where} loads it", alone=value.alone)
                rank = _rank(origin.name) + (0 if value.alone else _BY_FOLDER)
                if origin.name not in found or rank < found[origin.name][0]:
                    found[origin.name] = (rank, made)
    return [made for _, made in sorted(found.values(), key=lambda one: one[0])]


def named_hand_overs(tracer: ValueTracer, known: Collection[str]) -> list[HandOver]:
    """Options, or usual keys of a configuration, whose names say so, but for those that are ``known``."""
    code = tracer.code
    named = [one for one in code.options if one.spelled and _means_resume(one.name) and one.name not in known]
    found = [
        _handed(tracer, Origin(kind=OriginKind.OPTION, name=one.name, where=one.where), "", alone=True)
        for one in sorted(named, key=lambda one: _rank(one.name))
    ]
    if found or known or not code.names_options:
        return found
    keys = {name: key for name in _USUAL_KEYS if (key := tracer.keys(name)) is not None}
    origins = [
        Origin(kind=OriginKind.KEY, name=name, where=where, file=file)
        for name, (_, file, where) in keys.items()
    ]
    return [_handed(tracer, one, "", alone=True) for one in origins]


def _handed(tracer: ValueTracer, origin: Origin, how: str, *, alone: bool) -> HandOver:
    option = tracer.code.option(origin.name)
    where = f"{origin.where}{f'; {how}' if how else ''}"
    template = "{checkpoint}" if alone else "{checkpoint_dir}"
    if option is not None and option.spelled:
        return _by_option(option, replace(origin, kind=OriginKind.OPTION), where, template)
    if origin.kind is OriginKind.OPTION or tracer.code.names_options:
        return HandOver(origin=origin, where=where, spelled=f"--{origin.name}", template=template)
    return HandOver(origin=origin, where=where, template=template)


def _by_option(option: ScriptOption, origin: Origin, where: str, template: str) -> HandOver:
    if option.flag:
        return HandOver(origin=origin, where=where, spelled=option.spelled, template="")
    default = option.default.value if isinstance(option.default, ast.Constant) else None
    if option.kind in _SWITCHES or isinstance(default, bool):
        switched = "1" if option.kind == "int" else "true"
        return HandOver(origin=origin, where=where, spelled=option.spelled, template=switched)
    return HandOver(origin=origin, where=where, spelled=option.spelled, template=template)


def _means_resume(key: str) -> bool:
    name = key.rpartition(".")[2]
    return _TAKES_PATH.search(name) is not None and (
        _NOT_WHERE.search(name) is None or name.startswith("resume_from")
    )


def _rank(name: str) -> int:
    return next((at for at, part in enumerate(_RANKS) if part in name.lower()), len(_RANKS))


def by_condition(code: PythonCode, loads: Sequence[CallOfPath]) -> tuple[Remark | None, list[HandOver]]:
    """``if init_from == "resume": torch.load(...)``: the option that says so, or a word about it."""
    for one in loads:
        for test in _tests_around(code, one):
            match test:
                case ast.Compare(
                    left=(ast.Name(id=name) | ast.Attribute(attr=name)) as left,
                    ops=[ast.Eq()],
                    comparators=[ast.Constant(value=str(word))],
                ) if name != "__name__":
                    where = one.module.where(left)
                    option = code.option(name)
                    if option is not None and option.spelled:
                        origin = Origin(kind=OriginKind.OPTION, name=name, where=option.where)
                        told = f"{option.where}; {where} loads if it is {word}"
                        return None, [
                            HandOver(origin=origin, where=told, spelled=option.spelled, template=word)
                        ]
                    what = f"{one.where} loads only if {name} is {word!r} ({where})"
                    return Remark(
                        what=what, why=f"--resume_arg=--{name}={word}, if the script takes that"
                    ), []
                case _:
                    pass
    return None, []


def _tests_around(code: PythonCode, one: CallOfPath) -> Iterator[ast.expr]:
    """The tests of the ``if`` around a call, and around the calls of the function that it stands in."""
    around: list[tuple[PythonModule, ast.AST]] = [(one.module, one.call)]
    owner = one.module.owners[id(one.call)]
    if owner is not None:
        around += list(code.calls_of(one.module.called_as(owner)))
    for module, inner in around:
        for node in module.nodes:
            if isinstance(node, ast.If) and any(
                part is inner for stmt in node.body for part in ast.walk(stmt)
            ):
                yield node.test


def loaded_by_itself(tracer: ValueTracer, loads: Sequence[CallOfPath], saved: Sequence[str]) -> str:
    """A load from a folder that the script has ``saved`` in: it looks for its checkpoint itself."""
    folders = {posixpath.normpath(one) for one in saved}
    for one in loads:
        for value in tracer.values(one.path, one.module):
            reached = {posixpath.normpath(path) for path in (value.folder, value.directory) if path}
            if folders & reached:
                return f"{one.where} loads {value.text if value.whole else f'a file of {value.folder}'}"
    return ""
