"""Values that a script's source gives to its calls, read without running it: where a Trainer saves.

``TrainingArguments.output_dir`` is the keyword argument of a call whose name ends in ``TrainingArguments``
(``Seq2SeqTrainingArguments`` is one), ``TrainingArguments.0`` its first positional one. A value is known if
it is a text, a name that is assigned once, a field of the script's arguments (``args.output_dir``: what the
script is given, else the default of its ``add_argument`` or of the class that declares it), or a path that
is joined of such.
"""

import ast
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from faultrun.files import bytes_from

_MAX_BYTES = 4 << 20
_DEEPEST = 8
_CLASS_PARSERS = frozenset({"HfArgumentParser", "TrlParser"})
PARSERS = frozenset({*_CLASS_PARSERS, "LightningCLI", "CLI", "auto_cli", "cli", "Fire"})
"""They make options of the fields of classes, which the source need not spell out."""
OPTION_CALLS = frozenset({"add_argument", "add_arg", "add_option", "option", "Option"})
"""Calls that declare an option of the script: of argparse, configargparse, optparse, click and typer."""
DEFINES = "DEFINE_"
"""absl's begin so, and name the option without its dashes."""
_NO_PATH_FIRST = frozenset({"torch", "np", "numpy"})
"""Their ``save`` has nothing to do with a trainer's method of that name."""
_JOINS = frozenset({"join", "joinpath", "Path", "PurePath", "str", "fspath"})

Argument = Callable[[str], str | None]
"""The value of the script's argument ``--NAME``, None where it is not given."""


class SourceCode:
    """The Python files of a program, the script first. What cannot be read or parsed tells nothing.

    ``computed`` are the values that were asked for, are given there, and are not known. ``several`` are
    those that calls give differently: the known ones, and "" where others are not known. ``asked``: whether
    a value was asked for.
    """

    def __init__(self, files: Sequence[Path] = ()) -> None:
        self._files = tuple(files)
        self.computed: list[str] = []
        self.several: dict[str, tuple[str, ...]] = {}
        self.asked = False
        self._resolving: set[str] = set()

    def value(self, what: str, argument: Argument) -> str | None:
        """The first known value of ``CALL.NAME``; None where there is none."""
        return next(iter(self.values([what], argument)), None)

    def values(self, places: Sequence[str], argument: Argument) -> tuple[str, ...]:
        """Every known value of each ``CALL.NAME``, once: which of the calls will run is not known.

        Of a path whose end is not known (``f"out/step_{n}"``) it is the folder before that.
        """
        self.asked = True
        found: list[str] = []
        unknown: list[str] = []
        for what in places:
            call, _, name = what.rpartition(".")
            for tree, node in self._calls(call):
                given = _given(node, name)
                known = "" if given is None else self._text(given, tree, argument, _DEEPEST).path
                found += [known] if known else []
                unknown += [] if given is None or known else [what]
        self.computed += dict.fromkeys(unknown)
        different = tuple(dict.fromkeys(found))
        if len(different) > 1 or (different and unknown):
            self.several[places[0]] = (*different, "") if unknown else different
        return different

    def _calls(self, name: str) -> Iterator[tuple[ast.Module, ast.Call]]:
        for tree in self._trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and name_of(node.func).endswith(name) and _may_save(node.func):
                    yield tree, node

    def default(self, name: str) -> str | None:
        """The default of the script's own argument ``name``."""
        self.asked = True
        return self._default(name, lambda _: None, _DEEPEST).path or None

    def option(self, name: str) -> str | None:
        """``--name`` as the source declares it, with dashes or underscores; None if it does not.

        It is taken to be there where a parser makes options of classes that may have it, and where there is
        no source. A flag is none: it takes no path. Nor is a text that the source uses for something else.
        """
        spellings = (f"--{name}", f"--{name.replace('_', '-')}")
        nodes = self.nodes
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        others = frozenset(_other_names(nodes))
        declared = [text for call in calls if not _is_flag(call) for text in _declares(call, others)]
        written = next((text for text in declared if text in spellings), None)
        parsers = (call for call in calls if name_of(call.func) in PARSERS)
        made = not nodes or any(self._may_have(call, name) for call in parsers)
        return spellings[0] if made and written is None else written

    def _may_have(self, parser: ast.Call, name: str) -> bool:
        """Whether one of the classes that a parser reads has the field, or is not to be seen here."""
        classes = {node.name: node for node in self.nodes if isinstance(node, ast.ClassDef)}
        if name_of(parser.func) not in _CLASS_PARSERS or not parser.args:
            return True
        given = parser.args[0]
        waiting = list(given.elts if isinstance(given, ast.Tuple | ast.List) else [given])
        for one in waiting:  # it grows by the bases
            seen = classes.get(name_of(one))
            if seen is None or any(name_of(line.target) == name for line in _fields(seen)):
                return True
            waiting += [base for base in seen.bases if base not in waiting]
        return False

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of every file, outer ones before those in them."""
        return tuple(node for tree in self._trees for node in ast.walk(tree))

    @cached_property
    def _trees(self) -> tuple[ast.Module, ...]:
        return tuple(tree for file in self._files for tree in _parsed(file))

    def _text(self, node: ast.expr, tree: ast.Module, argument: Argument, depth: int) -> "_Known":
        if depth == 0:
            return _UNKNOWN

        def joined(nodes: Sequence[ast.expr], joint: str) -> _Known:
            text = ""
            for number, one in enumerate(nodes):
                part = self._text(one, tree, argument, depth - 1)
                text += f"{joint if number else ''}{part.text}"
                if not part.whole:
                    return _Known(text, whole=False)
            return _Known(text, whole=True)

        match node:
            case ast.Constant(value=str(text)):
                return _Known(text, whole=True)
            case ast.JoinedStr(values=nodes):
                return joined(nodes, "")
            case ast.FormattedValue(value=inner, format_spec=None):
                return joined([inner], "")
            case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Div() as op):
                return joined([left, right], "" if isinstance(op, ast.Add) else "/")
            case ast.Call(func=func, args=nodes, keywords=[]) if nodes and name_of(func) in _JOINS:
                return joined(nodes, "/")
            case ast.Name(id=name) if name not in self._resolving:
                every = list(_assigned(tree, name))
                named = [{getattr(part, "id", "") for part in ast.walk(one)} for one in every]
                further = [
                    one for one, names in zip(every, named, strict=True) if name in names
                ]  # longer by it
                assigned = list({ast.dump(one): one for one in further or every}.values())
                self._resolving.add(name)
                found = joined(assigned, "") if len(assigned) == 1 else _UNKNOWN
                self._resolving.discard(name)
                return found
            case ast.Attribute(attr=name):
                given = argument(name)
                return self._default(name, argument, depth) if given is None else _Known(given, whole=True)
            case _:
                return _UNKNOWN

    def _default(self, name: str, argument: Argument, depth: int) -> "_Known":
        """What the script's own argument ``name`` is when it is not given."""
        for tree in self._trees:
            for node in ast.walk(tree):
                if (default := _declared(node, name)) is not None:
                    return self._text(default, tree, argument, depth - 1)
        return _UNKNOWN


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a text: all of it, or only how it begins."""

    text: str
    whole: bool

    @property
    def path(self) -> str:
        """The text; of a path that is known in part the folder that holds the rest; '' if nothing is."""
        return self.text if self.whole else self.text.rpartition("/")[0]


_UNKNOWN = _Known("", whole=False)


def _parsed(file: Path) -> Iterator[ast.Module]:
    with suppress(OSError, SyntaxError, ValueError, RecursionError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes are the worker's to complain about
        yield ast.parse(bytes_from(file, 0, _MAX_BYTES))


def _texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The literal texts among ``nodes``."""
    values = (node.value for node in nodes if isinstance(node, ast.Constant))
    return (value for value in values if isinstance(value, str))


def _other_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """What the source calls a method that declares options: ``add = parser.add_argument``."""
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute(attr=method)) if (
                method in OPTION_CALLS
            ):
                yield name


def _declares(call: ast.Call, others: Collection[str]) -> Iterator[str]:
    """The options that a call declares, with their dashes; ``others`` are names that declare, too."""
    if (name := name_of(call.func)) in OPTION_CALLS or name in others:
        yield from _texts(call.args)
    elif name.startswith(DEFINES):
        yield from (f"--{text}" for text in _texts(call.args[:1]))


def _is_flag(call: ast.Call) -> bool:
    """Whether argparse, click or absl would make an option without a value of it."""
    told = {one.arg: one.value.value for one in call.keywords if isinstance(one.value, ast.Constant)}
    action = told.get("action")
    if told.get("is_flag") is True or name_of(call.func) in ("DEFINE_bool", "DEFINE_boolean"):
        return True
    return isinstance(action, str) and action not in ("store", "append")


def _may_save(func: ast.expr) -> bool:
    match func:
        case ast.Attribute(value=ast.Name(id=owner)):
            return owner not in _NO_PATH_FIRST
        case _:
            return True


def _fields(node: ast.ClassDef) -> Iterator[ast.AnnAssign]:
    return (one for one in node.body if isinstance(one, ast.AnnAssign))


def name_of(func: ast.expr) -> str:
    """The last part of what is called."""
    match func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _given(call: ast.Call, name: str) -> ast.expr | None:
    """The argument of a call by its name, or by its position if that is a number."""
    if name.isdecimal():
        return call.args[int(name)] if int(name) < len(call.args) else None
    return next((one.value for one in call.keywords if one.arg == name), None)


def _assigned(tree: ast.Module, name: str) -> Iterator[ast.expr]:
    """Every value that is assigned to a plain name."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                yield value
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                yield value


def _declared(node: ast.AST, name: str) -> ast.expr | None:
    """The default of an argument: of argparse's or click's, or of a field of a class."""
    match node:
        case ast.Call(args=[*words], keywords=keywords):
            if any(text.lstrip("-").replace("-", "_") == name for text in _texts(words)):
                return next((one.value for one in keywords if one.arg == "default"), None)
        case ast.ClassDef():
            fields = (one for one in _fields(node) if name_of(one.target) == name)
            return next((one.value for one in fields if one.value), None)
    return None
