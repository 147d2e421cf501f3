"""How a script takes what a restart hands over, by its source: what can be known is settled at the start.

An option belongs to the parser that declares it, and stands where that parser reads. A file of settings that
is the one argument of a script is rewritten, since it takes no other argument. Hydra reads the value of a
word by a grammar, in which a path stands in quotes. Nothing is run; what is not seen stays as it was said.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from faultrun.configs.argv import option_of
from faultrun.configs.recipes.source_value import SourceCode, name_of
from faultrun.files import bytes_from
from faultrun.model.spec.run_spec import Rewrite

_MAX_BYTES = 4 << 20
_HYDRA = re.compile(rb"(?m)^\s*(?:from|import)\s[^#\n]*\b(?:hydra|omegaconf)\b")
_MATTERS = re.compile(
    rb"""REMAINDER|add_subparsers|["']\.\.\.["']|\.group\(|\bargv\b|parse_(?:json|yaml)_file"""
)
_TEXT = r"[^\[\],]*"
_PATH = re.compile(rf"{_TEXT}\{{(?:checkpoint\w*|run_id)\}}{_TEXT}")
_SETTINGS = frozenset({".json", ".yaml", ".yml"})
_COUNTED = re.compile(r"len\((?:sys\.)?argv\) [=!]= 2\b|len\((?:sys\.)?argv\[1:\]\) [=!]= 1\b")
_PARSER = re.compile(
    rb"\b(?:argparse|click|typer|absl|docopt|[Ff]ire|tyro|jsonargparse|simple_parsing|configargparse|hydra"
    rb"|omegaconf|optparse|getopt|\w*ArgumentParser|\w*CLI|parse_args)\b"
)
_FILE_PARSERS = frozenset({"parse_json_file", "parse_yaml_file"})
_GROUPS = frozenset({"add_argument_group", "add_mutually_exclusive_group"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """What a restart passes and sets. An option that is missing goes before argument ``at``; None: last."""

    resume_args: tuple[str, ...]
    rewrites: tuple[Rewrite, ...] = ()
    at: int | None = None


def hand_over(
    resume_args: Sequence[str], args: Sequence[str], source: Path | None, files: Sequence[Path]
) -> HandOver:
    """Settle how ``resume_args``, templates, reach the program of ``files`` that is started with ``args``.

    Without a ``source`` the arguments are a shell's, or another program's, which may hand them on or not.
    """
    texts = [bytes_from(file, 0, _MAX_BYTES) for file in files]
    if any(map(_HYDRA.search, texts)):
        resume_args = [quoted(text) for text in resume_args]
    if source is None or not resume_args or not any(map(_MATTERS.search, texts)):
        return HandOver(resume_args=tuple(resume_args))
    nodes = SourceCode([file for file in files if file.suffix == ".py"]).nodes
    begin = next((at + 1 for at, word in enumerate(args) if Path(word) == source), 0)
    own = args[begin:]
    parses = any(map(_PARSER.search, texts))
    if len(own) == 1 and Path(own[0]).suffix in _SETTINGS and _takes_one_file(own[0], nodes, parses=parses):
        return HandOver(resume_args=(), rewrites=tuple(_in_file(own[0], text) for text in resume_args))
    names = {name for name, _ in map(option_of, resume_args) if name.startswith("-")}
    place = _place(nodes, names, own)
    return HandOver(resume_args=tuple(resume_args), at=None if place is None else begin + place)


def quoted(template: str) -> str:
    """The template of a word with each path in quotes, as Hydra's grammar wants one that holds ``=``."""
    name, value = option_of(template)
    if name.startswith("-") or value is None or any(mark in value for mark in ("'", '"', "{{")):
        return template
    return f"{name}=" + _PATH.sub(r"'\g<0>'", value)


def _takes_one_file(file: str, nodes: Sequence[ast.AST], *, parses: bool) -> bool:
    """Whether the program has no parser, or reads such a file in its place where it is the one argument."""
    names = {name_of(node.func) for node in nodes if isinstance(node, ast.Call)}
    if not parses or names & _FILE_PARSERS:
        return True
    texts = (node.value for node in nodes if isinstance(node, ast.Constant))
    compared = (ast.unparse(node) for node in nodes if isinstance(node, ast.Compare))
    return Path(file).suffix in texts and any(map(_COUNTED.search, compared))


def _in_file(file: str, resume_arg: str) -> Rewrite:
    """Set what would have been passed: the key of that name, wherever it is, else at the top."""
    import yaml  # noqa: PLC0415  most runs have no such file

    name, value = option_of(resume_arg)
    name = name.lstrip("-+").replace("-", "_")
    try:
        found = next(_keys(yaml.safe_load(bytes_from(Path(file), 0, _MAX_BYTES)), name), name)
    except yaml.YAMLError:
        found = name  # reading it at the start says what is wrong, in better words
    return Rewrite(file=file, key=found, template="true" if value is None else value)


def _keys(settings: object, name: str, above: str = "") -> Iterator[str]:
    for key, value in settings.items() if isinstance(settings, Mapping) else ():
        if str(key).replace("-", "_") == name:
            yield f"{above}{key}"
        yield from _keys(value, name, f"{above}{key}.")


def _place(nodes: Sequence[ast.AST], options: set[str], args: Sequence[str]) -> int | None:
    """Where ``options`` go that the words behind would swallow; None: to the end.

    Those of the parser itself go before every word, those of a subcommand right behind its name.
    """
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    commands = {_first_text(call) for call in calls if name_of(call.func) == "add_parser"}
    leaves_rest, grouped = any(map(_leaves_rest, nodes)), any(name_of(one.func) == "group" for one in calls)
    if not options or not (leaves_rest or commands or grouped):
        return None
    owners = set(_Parsers(nodes).owners(options))
    if owners == {""}:
        return 0
    behind = (at + 1 for at, word in enumerate(args) if word in commands)
    return next(behind, None) if leaves_rest and owners and "" not in owners else None


class _Parsers:
    """Which subcommand a parser is of, by how it was made and what it was handed to."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
        self._scopes: dict[ast.AST, str] = {}
        for function in functions:  # outer ones come first
            self._scopes.update(dict.fromkeys(ast.walk(function), function.name))
        self._parameters = {one.name: [each.arg for each in one.args.args] for one in functions}
        self._groups = [call for one in functions if _is_group(one) for call in one.decorator_list]
        self._known: dict[str, str] = {}
        self._calls = [node for node in nodes if isinstance(node, ast.Call)]
        assigned = [node for node in nodes if isinstance(node, ast.Assign)]
        for _ in range(4):  # parsers are handed on a few times at most
            for node in assigned:
                for target in node.targets:
                    self._note(self._scopes.get(node, ""), ast.unparse(target), self._owner(node.value, node))
            for call in self._calls:
                self._note_handed_on(call)

    def owners(self, options: set[str]) -> Iterator[str]:
        """The subcommand that each declaration of one of ``options`` belongs to; "" for the parser itself."""
        for call in self._calls:
            if any(isinstance(one, ast.Constant) and one.value in options for one in call.args):
                if name_of(call.func) == "option":
                    yield "" if call in self._groups else "?"
                elif isinstance(call.func, ast.Attribute):
                    yield self._owner(call.func.value, call)

    def _note_handed_on(self, call: ast.Call) -> None:
        name, scope = name_of(call.func), self._scopes.get(call, "")
        if name == "add_parser":
            lent = (one.value for one in call.keywords if one.arg == "parents")
            for one in (
                each for some in lent if isinstance(some, ast.List | ast.Tuple) for each in some.elts
            ):
                self._note(scope, ast.unparse(one), _first_text(call))
        to = [one for one in self._parameters.get(name, ()) if one not in ("self", "cls")]
        for parameter, one in zip(to, call.args, strict=False):
            self._note(name, parameter, self._owner(one, call))

    def _note(self, scope: str, name: str, owner: str) -> None:
        if owner:
            self._known[f"{scope}.{name}"] = owner

    def _owner(self, parser: ast.expr, at: ast.AST) -> str:
        match parser:
            case ast.Call(func=ast.Attribute(attr="add_parser")):
                return _first_text(parser)
            case ast.Call(func=ast.Attribute(value=of, attr=attr)) if attr in _GROUPS:
                return self._owner(of, at)
            case ast.Name() | ast.Attribute():
                name = ast.unparse(parser)
                here = self._known.get(f"{self._scopes.get(at, '')}.{name}")
                return here or self._known.get(f".{name}", "")
            case _:
                return ""


def _is_group(function: ast.FunctionDef) -> bool:
    called = (one.func if isinstance(one, ast.Call) else one for one in function.decorator_list)
    return any(name_of(one) in ("group", "callback") for one in called)


def _leaves_rest(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="REMAINDER") | ast.Name(id="REMAINDER"):
            return True
        case ast.keyword(arg="nargs", value=ast.Constant(value="...")):
            return True
    return False


def _first_text(call: ast.Call) -> str:
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else "?"
