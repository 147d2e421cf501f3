"""Values that a script's source gives to its calls, read without running it: where a Trainer saves.

``TrainingArguments.output_dir`` is the keyword argument of a call whose name ends in ``TrainingArguments``
(``Seq2SeqTrainingArguments`` is one), ``TrainingArguments.0`` its first positional one. A value is known if
it is a text, a name that is assigned once, a field of the script's arguments (``args.output_dir``: what the
script is given, else the default of its ``add_argument`` or of the class that declares it), or a path that
is joined of such.
"""

import ast
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from faultrun.files import bytes_from

_MAX_BYTES = 4 << 20
_DEEPEST = 8
_JOINS = frozenset({"join", "joinpath", "Path", "PurePath", "str", "fspath"})

Argument = Callable[[str], str | None]
"""The value of the script's argument ``--NAME``, None where it is not given."""


class SourceCode:
    """The Python files of a program, the script first. What cannot be read or parsed tells nothing."""

    def __init__(self, files: Sequence[Path] = ()) -> None:
        self._files = tuple(files)

    def value(self, what: str, argument: Argument) -> str | None:
        """The first known value of ``CALL.NAME``; None where there is none."""
        call, _, name = what.rpartition(".")
        for tree in self._trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and _name_of(node.func).endswith(call):
                    given = _given(node, name)
                    found = None if given is None else self._text(given, tree, argument, _DEEPEST)
                    if found:
                        return found
        return None

    def option(self, name: str) -> str | None:
        """``--name`` as the source spells it, with dashes or underscores; None if it is not there."""
        spellings = (f"--{name}", f"--{name.replace('_', '-')}")
        texts = (
            node.value for tree in self._trees for node in ast.walk(tree) if isinstance(node, ast.Constant)
        )
        return next((text for text in texts if isinstance(text, str) and text in spellings), None)

    @cached_property
    def _trees(self) -> tuple[ast.Module, ...]:
        return tuple(tree for file in self._files for tree in _parsed(file))

    def _text(self, node: ast.expr, tree: ast.Module, argument: Argument, depth: int) -> str | None:
        if depth == 0:
            return None

        def each(nodes: Sequence[ast.expr], joint: str) -> str | None:
            parts = [self._text(one, tree, argument, depth - 1) for one in nodes]
            return None if None in parts else joint.join(part for part in parts if part is not None)

        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.JoinedStr(values=nodes):
                return each(nodes, "")
            case ast.FormattedValue(value=inner, format_spec=None):
                return each([inner], "")
            case ast.BinOp(left=left, right=right, op=ast.Add()):
                return each([left, right], "")
            case ast.BinOp(left=left, right=right, op=ast.Div()):
                return each([left, right], "/")
            case ast.Call(func=func, args=nodes, keywords=[]) if nodes and _name_of(func) in _JOINS:
                return each(nodes, "/")
            case ast.Name(id=name):
                assigned = list(_assigned(tree, name))
                return each(assigned, "") if len(assigned) == 1 else None
            case ast.Attribute(value=ast.Name(), attr=name):
                given = argument(name)
                return self._default(name, argument, depth) if given is None else given
            case _:
                return None

    def _default(self, name: str, argument: Argument, depth: int) -> str | None:
        """What the script's own argument ``name`` is when it is not given."""
        for tree in self._trees:
            for node in ast.walk(tree):
                default = _declared(node, name)
                if default is not None:
                    return self._text(default, tree, argument, depth - 1)
        return None


def _parsed(file: Path) -> Iterator[ast.Module]:
    with suppress(OSError, SyntaxError, ValueError, RecursionError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes are the worker's to complain about
        yield ast.parse(bytes_from(file, 0, _MAX_BYTES))


def _name_of(func: ast.expr) -> str:
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
            case _:
                pass


def _declared(node: ast.AST, name: str) -> ast.expr | None:
    """The default of an argument: of argparse's or click's, or of a field of a class."""
    match node:
        case ast.Call(args=[*words], keywords=keywords):
            options = (word.value for word in words if isinstance(word, ast.Constant))
            if any(isinstance(one, str) and one.lstrip("-").replace("-", "_") == name for one in options):
                return next((one.value for one in keywords if one.arg == "default"), None)
        case ast.ClassDef(body=body):
            fields = (one for one in body if isinstance(one, ast.AnnAssign))
            return next((one.value for one in fields if _name_of(one.target) == name and one.value), None)
        case _:
            pass
    return None
