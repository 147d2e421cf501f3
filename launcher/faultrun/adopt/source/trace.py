"""Where a value of the source comes from: texts, options, keys of a configuration, variables, joined paths.

Follows names, arguments of calls and what functions return, through the program's own files. Of a value that
is known in part only its beginning is told; nothing is run, and what is not known is not guessed.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from faultrun.adopt.source.call_arguments import Function, default_of, given_to, parameters
from faultrun.adopt.source.python_code import PythonCode, PythonModule
from faultrun.adopt.source.traced import Origin, OriginKind, Traced, needs_shell, not_known

_DEEPEST = 24
_MOST = 8
_MOST_LOOKS = 2000
_PATHS = frozenset({"Path", "PurePath", "PosixPath", "UPath"})
_SAME_PATH = _PATHS | {
    *("str", "fspath", "abspath", "expanduser", "expandvars", "normpath", "realpath", "resolve", "absolute"),
    *("as_posix", "strip", "rstrip", "open", "with_suffix"),
}
_JOINS = frozenset({"join", "joinpath"})
_PARENTS = frozenset({"dirname", "parent"})
_VARIABLES = frozenset({"os.environ.get", "os.getenv", "environ.get", "getenv"})

KeyLookUp = Callable[[str], tuple[str, str, str] | None]
"""A key of the script's configuration file: its value, the file, and file:line; None if it is not there."""

Given = Callable[[str], str | None]
"""The value of the script's argument ``--NAME`` on the command line, None where it is not given."""


def _no_key(_: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class _At:
    """The module that is read, and the nodes passed so far: a value that leads to itself is not known."""

    module: PythonModule
    seen: frozenset[int] = frozenset()

    def below(self, node: ast.AST) -> "_At":
        return replace(self, seen=self.seen | {id(node)})

    def inside(self, module: PythonModule) -> "_At":
        return replace(self, module=module)

    def has(self, node: ast.AST) -> bool:
        return id(node) in self.seen or len(self.seen) > _DEEPEST


@dataclass(frozen=True)
class ValueTracer:
    """Follows values through ``code``, with what the command line, ``keys`` and ``variables`` give."""

    code: PythonCode
    given: Given
    keys: KeyLookUp
    variables: dict[str, str] = field(default_factory=dict)
    below: Callable[[str], str | None] = _no_key
    """The one key of the configuration that ends in a name; None where there is none, or are several."""
    _looks: Counter[str] = field(default_factory=Counter, compare=False)

    def values(self, node: ast.expr, module: PythonModule) -> tuple[Traced, ...]:
        """Everything that the value may be, at most 8; each once. What takes too many looks is not known."""
        self._looks.clear()
        return tuple(dict.fromkeys(self._of(node, _At(module))))[:_MOST]

    def _of(self, node: ast.expr, at: _At) -> list[Traced]:
        self._looks["all"] += 1
        if at.has(node) or self._looks["all"] > _MOST_LOOKS:
            return [not_known(node)]
        at = at.below(node)
        match node:
            case ast.Constant(value=value):
                return [_constant(value, at.module.where(node))]
            case ast.Call():
                return self._call(node, at)
            case ast.Name(id=name):
                return self._name(name, node, at)
            case ast.Attribute():
                return self._attribute(node, at)
            case ast.Subscript(value=inner, slice=ast.Constant(value=str(key))):
                if at.module.dotted(inner).endswith("environ"):
                    return [self._variable(key, None, node, at)]
                return self._field(key, _dotted_key(inner, key), node, at)
            case _:
                return self._composed(node, at)

    def _composed(self, node: ast.expr, at: _At) -> list[Traced]:
        match node:
            case ast.JoinedStr(values=parts):
                return self._joined(parts, "", at)
            case ast.FormattedValue(value=inner, format_spec=None):
                return self._of(inner, at)
            case ast.NamedExpr(value=inner) | ast.Await(value=inner):
                return self._of(inner, at)
            case ast.BinOp(left=left, right=right, op=ast.Add()):
                return self._joined([left, right], "", at)
            case ast.BinOp(left=left, right=right, op=ast.Div()):
                return self._joined([left, right], "/", at)
            case ast.BinOp(left=left, op=ast.Mod()):
                return [one.cut("%") for one in self._of(left, at)]
            case ast.BoolOp(op=ast.Or(), values=parts):
                return self._several(parts, node, at)
            case ast.IfExp(body=body, orelse=orelse):
                return [*self._of(body, at), *self._of(orelse, at)]
            case _:
                return [not_known(node)]

    def _joined(self, parts: Sequence[ast.expr], joint: str, at: _At) -> list[Traced]:
        found = [Traced(whole=True)]
        for number, part in enumerate(parts):
            between = joint if number else ""
            found = [one.joined(other, between) for one in found for other in self._of(part, at)][:_MOST]
        return found

    def _several(self, found: Iterable[ast.expr | None], node: ast.expr, at: _At) -> list[Traced]:
        """What each of ``found`` may be. A name that is first "" or None, and then a path, is the path."""
        every = [
            one for value in found for one in ([not_known(node)] if value is None else self._of(value, at))
        ]
        return ([one for one in every if one.told] or every or [not_known(node)])[:_MOST]

    def _call(self, node: ast.Call, at: _At) -> list[Traced]:
        dotted = at.module.dotted(node.func)
        name = dotted.rpartition(".")[2]
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        if dotted.startswith("os.path.") or (
            isinstance(receiver, ast.Name) and receiver.id in at.module.imports
        ):
            receiver = None  # a function of a module, not a method
        if dotted in _VARIABLES and node.args and isinstance(node.args[0], ast.Constant):
            default = node.args[1] if len(node.args) > 1 else None
            return [self._variable(str(node.args[0].value), default, node, at)]
        path = self._path_call(name, receiver, node, at)
        if path is not None:
            return path
        if name == "get" and receiver is not None and node.args and isinstance(node.args[0], ast.Constant):
            key = str(node.args[0].value)
            found = self._field(key, _dotted_key(receiver, key), node, at)
            default = node.args[1] if len(node.args) > 1 else None
            return found if default is None or any(one.text for one in found) else self._of(default, at)
        local = self.code.function(name)
        return self._returned(*local, at) or [not_known(node)] if local is not None else [not_known(node)]

    def _path_call(
        self, name: str, receiver: ast.expr | None, node: ast.Call, at: _At
    ) -> list[Traced] | None:
        """What ``os.path`` and ``pathlib`` make of paths; None for another call."""
        own = [] if receiver is None else [receiver]
        if name in _JOINS:
            return self._joined([*own, *node.args], "/", at)
        if name in _PARENTS:
            return [one.parent for part in [*node.args, *own][:1] for one in self._of(part, at)]
        if name == "with_name" and receiver is not None and node.args:
            folders = [one.parent for one in self._of(receiver, at)]
            return [one.joined(other, "/") for one in folders for other in self._of(node.args[0], at)]
        if name == "format" and receiver is not None:
            return [one.cut("{") for one in self._of(receiver, at)]
        if name not in _SAME_PATH:
            return None
        parts = own if own and name not in _PATHS else list(node.args)
        return self._joined(parts[:1] if name == "open" else parts, "/", at) if parts else None

    def _returned(self, module: PythonModule, function: Function, at: _At) -> list[Traced]:
        values = [
            node.value
            for node in module.nodes
            if isinstance(node, ast.Return) and module.owners[id(node)] is function and node.value is not None
        ]
        return [one for value in values for one in self._of(value, at.inside(module))][:_MOST]

    def _name(self, name: str, node: ast.expr, at: _At) -> list[Traced]:
        module = at.module
        if name == "__file__":
            return [Traced(text=module.shown, whole=True, where=module.where(node))]
        owner = module.owners.get(id(node))
        outer = module.owners.get(id(owner)) if owner is not None else None
        for scope in dict.fromkeys([owner, outer, None]):
            found = list(module.bound(name, scope))
            if scope is not None and not found and name in parameters(scope):
                return self._parameter(name, scope, node, at)
            if found:
                return self._several(found, node, at)
        imported = module.imports.get(name, "")
        other = self.code.module_named(imported.rpartition(".")[0]) if imported else None
        if other is None or other is module:
            return [not_known(node)]
        return self._several(other.bound(imported.rpartition(".")[2], None), node, at.inside(other))

    def _parameter(self, name: str, function: Function, node: ast.expr, at: _At) -> list[Traced]:
        """What the calls of the function give; an option of that name where a decorator or Fire calls it."""
        by_decorator = bool(function.decorator_list) and self.code.option(name) is not None
        calls = list(self.code.calls_of(at.module.called_as(function)))
        if by_decorator or (not calls and self.code.reads_classes):
            return self._field(name, name, node, at)
        every: list[Traced] = []
        for other, call in calls:
            value = given_to(call, name, function)
            every += [] if value is None else self._of(value, at.inside(other))
        default = default_of(name, function)
        if default is not None and not every:
            every = self._of(default, at)
        return every[:_MOST] or [Traced(unknown=f"{name} of {function.name}()")]

    def _attribute(self, node: ast.Attribute, at: _At) -> list[Traced]:
        if node.attr == "parent":
            return [one.parent for one in self._of(node.value, at)]
        if isinstance(node.value, ast.Name):
            other = self.code.module_named(at.module.imports.get(node.value.id, ""))
            if other is not None and other is not at.module:
                found = list(other.bound(node.attr, None))
                if found:
                    return self._several(found, node, at.inside(other))
            if node.value.id == "self":
                own = [value for value in at.module.set_on(node.attr, "self") if not at.has(value)]
                if own:
                    return self._several(own, node, at)
        return self._field(node.attr, _dotted_key(node.value, node.attr), node, at)

    def _field(self, name: str, dotted: str, node: ast.expr, at: _At) -> list[Traced]:
        """A field of the script's arguments or configuration: as given, else by its key, else by default."""
        declared, given = self.code.option(name), self.given(name)
        named, key = self._key(name, dotted)
        origins = self._origins(name, key[2] if key is not None else "")
        if given is not None:
            own = origins or (Origin(kind=OriginKind.OPTION, name=name, where="the command"),)
            typed = given if needs_shell(given) else ""
            where = f"--{name} of the command"
            return [Traced(text=given, whole=True, where=where, origins=own, typed=typed)]
        if key is not None:
            value, file, line = key
            of_file = Origin(kind=OriginKind.KEY, name=named, where=line, file=file)
            return [Traced(text=value, whole=True, where=line, origins=(*origins, of_file))]
        if declared is not None:
            if declared.default is None:
                return [
                    Traced(origins=origins, unknown=f"--{name}, which has no default", where=declared.where)
                ]
            found = self._of(declared.default, at.inside(declared.module))
            return [replace(one, origins=(*origins, *one.origins)) for one in found]
        for other in self.code.modules:  # args.output_dir = ...
            assigned = [value for value in other.set_on(name, "") if not at.has(value)]
            if assigned:
                return self._several(assigned, node, at.inside(other))
        return [not_known(node)]

    def _key(self, name: str, dotted: str) -> tuple[str, tuple[str, str, str] | None]:
        """The key of the configuration that is meant, and what stands there; by its last name if need be."""
        named = next((one for one in (dotted, name) if self.keys(one) is not None), name)
        declared = self.code.option(name)
        if self.keys(named) is None and (declared is None or not declared.spelled):
            named = self.below(name) or name
        return named, self.keys(named)

    def _origins(self, name: str, key_where: str) -> tuple[Origin, ...]:
        """The option of that name, declared or made for a key."""
        declared = self.code.option(name)
        if declared is not None and (declared.spelled or self.code.reads_classes):
            return (Origin(kind=OriginKind.OPTION, name=name, where=declared.where),)
        if key_where and self.code.names_options:
            return (Origin(kind=OriginKind.OPTION, name=name, where=key_where),)
        return ()

    def _variable(self, name: str, default: ast.expr | None, node: ast.expr, at: _At) -> Traced:
        origin = Origin(kind=OriginKind.VARIABLE, name=name, where=at.module.where(node))
        if name in self.variables:
            text, where = self.variables[name], f"{name} of the command"
            typed = text if needs_shell(text) else ""
            return Traced(text=text, whole=True, where=where, origins=(origin,), typed=typed)
        known = (
            Traced(unknown=f"the variable {name}") if default is None else next(iter(self._of(default, at)))
        )
        return replace(known, origins=(origin, *known.origins))


def _constant(value: object, where: str) -> Traced:
    if isinstance(value, bytes) or value is Ellipsis:
        return Traced(unknown=repr(value))
    return Traced(text="" if value is None else str(value), whole=True, where=where)


def _dotted_key(node: ast.expr, last: str) -> str:
    """``cfg.train.out`` and ``cfg["train"]["out"]`` are the key ``train.out``."""
    parts = [last]
    while True:
        match node:
            case (
                ast.Attribute(value=inner, attr=name)
                | ast.Subscript(value=inner, slice=ast.Constant(value=str(name)))
            ):
                parts.append(name)
                node = inner
            case _:
                return ".".join(reversed(parts))
