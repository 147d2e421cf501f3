"""The Python files of a program as trees that know their scopes: functions, names, declared options.

Reads what is parsed; nothing of it is run or imported.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from faultrun.adopt.source.call_arguments import Function
from faultrun.frameworks.detect import UnreadableSource, read_tree

_ADDS = frozenset({"add_argument", "add_arg", "add_option", "option", "Option", "Argument"})
_DEFINES = "DEFINE_"
_CLASS_PARSERS = frozenset(
    {"HfArgumentParser", "TrlParser", "cli", "CLI", "LightningCLI", "auto_cli", "Fire"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOption:
    """An option that the script declares. ``spelled`` is as a person types it, "" for a field of a class.

    ``flag``: it takes no value; ``kind`` is the type as it is written. ``default`` is None where it has none.
    ``also`` are its other spellings.
    """

    name: str
    spelled: str
    where: str
    module: "PythonModule"
    default: ast.expr | None = None
    flag: bool = False
    kind: str = ""
    also: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class PythonModule:
    """One file. ``shown`` names it in messages."""

    path: Path
    shown: str
    tree: ast.Module

    def where(self, node: ast.AST) -> str:
        """File and line, as compilers say it."""
        return f"{self.shown}:{getattr(node, 'lineno', 1)}"

    @cached_property
    def owners(self) -> dict[int, Function | None]:
        """The function around each node, by the node's id."""
        found: dict[int, Function | None] = {}
        waiting: list[tuple[ast.AST, Function | None]] = [(self.tree, None)]
        while waiting:
            node, owner = waiting.pop()
            found[id(node)] = owner
            inside = node if isinstance(node, Function) else owner
            waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
        return found

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node, from the top of the file down."""
        every = (node for node in ast.walk(self.tree) if hasattr(node, "lineno"))
        return tuple(
            sorted(every, key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
        )

    @cached_property
    def calls(self) -> tuple[ast.Call, ...]:
        """Every call, from the top of the file down."""
        return tuple(node for node in self.nodes if isinstance(node, ast.Call))

    @cached_property
    def imports(self) -> dict[str, str]:
        """The dotted name that each imported name stands for; relative ones keep their dots."""
        found: dict[str, str] = {}
        for node in self.nodes:
            match node:
                case ast.Import(names=aliases):
                    for one in aliases:
                        top = one.name.partition(".")[0]
                        found[one.asname or top] = one.name if one.asname else top
                case ast.ImportFrom(module=module, names=aliases, level=level):
                    package = "." * level + (module or "")
                    joint = "" if not package or package.endswith(".") else "."
                    found.update({one.asname or one.name: f"{package}{joint}{one.name}" for one in aliases})
                case _:
                    pass
        return found

    def dotted(self, func: ast.expr) -> str:
        """The full name of what is called, its first part as it was imported: ``torch.save``."""
        parts: list[str] = []
        while isinstance(func, ast.Attribute):
            parts.append(func.attr)
            func = func.value
        if isinstance(func, ast.Name):
            parts.append(self.imports.get(func.id, func.id))
        elif parts:
            parts.append("")
        return ".".join(reversed(parts))

    def bound(self, name: str, owner: Function | None) -> Iterator[ast.expr | None]:
        """What a plain name is bound to in a function, or at the top; None where only a run could tell."""
        for node in self.nodes:
            if self.owners[id(node)] is owner:
                yield from _bindings(node, name)

    def set_on(self, name: str, holder: str) -> Iterator[ast.expr]:
        """What is assigned to ``holder.name``; to the attribute of anything where no holder is named."""
        for node in self.nodes:
            match node:
                case (
                    ast.Assign(targets=[ast.Attribute(value=owner, attr=attr)], value=value)
                    | ast.AnnAssign(target=ast.Attribute(value=owner, attr=attr), value=ast.expr() as value)
                ) if attr == name and (not holder or (isinstance(owner, ast.Name) and owner.id == holder)):
                    yield value
                case _:
                    pass

    def called_as(self, function: Function) -> str:
        """The name by which it is called: for ``__init__`` that of its class."""
        if function.name != "__init__":
            return function.name
        classes = (node for node in self.nodes if isinstance(node, ast.ClassDef) and function in node.body)
        return next((node.name for node in classes), function.name)

    def function_of(self, name: str) -> Function | None:
        """The function or method of this name."""
        found = (node for node in self.nodes if isinstance(node, Function) and node.name == name)
        return next(found, None)


@dataclass(frozen=True)
class PythonCode:
    """A program: its script first, then the modules beside it that it imports.

    ``unread`` could not be parsed.
    """

    modules: tuple[PythonModule, ...]
    unread: tuple[str, ...] = ()
    _cache: dict[str, tuple[ScriptOption, ...]] = field(default_factory=dict, compare=False)

    @cached_property
    def options(self) -> tuple[ScriptOption, ...]:
        """Every option that is declared, and every field of a class that a parser may read."""
        return tuple(one for module in self.modules for one in _options(module))

    @cached_property
    def names_options(self) -> bool:
        """Whether options are declared whose names only a run would tell: one for each key of a file."""
        return any(
            isinstance(call.args[0], ast.JoinedStr) and ast.unparse(call.args[0])[2:4] == "--"
            for module in self.modules
            for call in module.calls
            if _name_of(call.func) in _ADDS and call.args
        )

    @cached_property
    def reads_classes(self) -> bool:
        """Whether some parser makes options of the fields of classes or the parameters of functions."""
        return any(_name_of(call.func) in _CLASS_PARSERS for module in self.modules for call in module.calls)

    def option(self, name: str) -> ScriptOption | None:
        """The one of this name; a declared one before a field."""
        found = [one for one in self.options if one.name == name]
        return next((one for one in found if one.spelled), next(iter(found), None))

    def function(self, name: str) -> tuple[PythonModule, Function] | None:
        """The first function or method of this name."""
        for module in self.modules:
            found = module.function_of(name)
            if found is not None:
                return module, found
        return None

    def calls_of(self, name: str) -> Iterator[tuple[PythonModule, ast.Call]]:
        """Every call of something of ours whose last name is ``name``: not of another package's."""
        for module in self.modules:
            for call in module.calls:
                if _name_of(call.func) == name and not self._is_foreign(call.func, module):
                    yield module, call

    def _is_foreign(self, func: ast.expr, module: PythonModule) -> bool:
        """Whether it belongs to a package that is imported and does not lie beside the script."""
        base = func.value if isinstance(func, ast.Attribute) else None
        imported = module.imports.get(base.id) if isinstance(base, ast.Name) else None
        return imported is not None and self.module_named(imported) is None

    def module_named(self, dotted: str) -> PythonModule | None:
        """The module beside the script that an import names."""
        last = dotted.rpartition(".")[2]
        return next((one for one in self.modules if last and one.path.stem == last), None)


def read_code(files: Sequence[Path], show: dict[Path, str]) -> PythonCode:
    """Parse ``files``; ``show`` names them in messages. What cannot be parsed is left out and named."""
    modules: list[PythonModule] = []
    unread: list[str] = []
    for file in files:
        shown = show.get(file, str(file))
        try:
            modules.append(PythonModule(path=file, shown=shown, tree=read_tree(file)))
        except UnreadableSource as error:
            unread.append(f"{shown}: {error}")
    return PythonCode(tuple(modules), tuple(unread))


def _name_of(func: ast.expr) -> str:
    match func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _bindings(node: ast.AST, name: str) -> Iterator[ast.expr | None]:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _assigned(target, value, name)
        case (
            ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value)
            | ast.NamedExpr(target=ast.Name(id=target), value=value)
        ) if target == name:
            yield value
        case ast.AugAssign(target=ast.Name(id=target)) if target == name:
            yield None
        case ast.For(target=target) | ast.AsyncFor(target=target) if _holds(target, name):
            yield None
        case ast.With(items=items) | ast.AsyncWith(items=items):
            for item in items:
                if item.optional_vars is not None:
                    yield from _assigned(item.optional_vars, item.context_expr, name)
        case ast.Match(subject=subject, cases=cases):
            captured = (part for case in cases for part in ast.walk(case.pattern))
            if any(isinstance(part, ast.MatchAs) and part.name == name for part in captured):
                yield subject
        case _:
            pass


def _assigned(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr | None]:
    if isinstance(target, ast.Name) and target.id == name:
        yield value
    elif isinstance(target, ast.Tuple | ast.List) and _holds(target, name):
        yield _unpacked(target, value, name)


def _holds(target: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(target))


def _unpacked(target: ast.Tuple | ast.List, value: ast.expr, name: str) -> ast.expr | None:
    if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
        for one, part in zip(target.elts, value.elts, strict=True):
            if isinstance(one, ast.Name) and one.id == name:
                return part
    return None


def _options(module: PythonModule) -> Iterator[ScriptOption]:
    renamed = {
        node.targets[0].id
        for node in module.nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr in _ADDS
    }
    for call in module.calls:
        name = _name_of(call.func)
        if name in _ADDS or name in renamed or name.startswith(_DEFINES):
            yield from _declared(module, call, absl=name.startswith(_DEFINES))
    for node in module.nodes:
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield ScriptOption(
                        name=line.target.id,
                        spelled="",
                        where=module.where(line),
                        module=module,
                        default=_field_default(line.value),
                        kind=ast.unparse(line.annotation),
                    )


def _field_default(value: ast.expr | None) -> ast.expr | None:
    """Look through ``field(default=...)``."""
    if isinstance(value, ast.Call) and _name_of(value.func) in ("field", "Field"):
        return next((one.value for one in value.keywords if one.arg == "default"), None)
    return value


def _declared(module: PythonModule, call: ast.Call, *, absl: bool) -> Iterator[ScriptOption]:
    texts = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    told = {one.arg: one.value for one in call.keywords if one.arg}
    if absl:
        texts = [f"--{texts[0]}"] if texts else []
        told.setdefault("default", call.args[1]) if len(call.args) > 1 else None
    dashed = [text.partition("/")[0] for text in texts if text.startswith("-")]
    long = next((text for text in dashed if text.startswith("--")), next(iter(dashed), ""))
    if not long:
        return
    dest = told.get("dest")
    name = dest.value if isinstance(dest, ast.Constant) else long.lstrip("-").replace("-", "_")
    action = told.get("action")
    valued = ("store", "append", "extend")
    flag = isinstance(action, ast.Constant) and isinstance(action.value, str) and action.value not in valued
    flag = flag or (isinstance(told.get("is_flag"), ast.Constant) and ast.unparse(told["is_flag"]) == "True")
    flag = flag or "BooleanOptionalAction" in (ast.unparse(action) if action is not None else "")
    default = told.get("default")
    if default is None and _name_of(call.func) == "Option" and call.args:
        default = call.args[0]  # typer: the default stands first
    yield ScriptOption(
        name=str(name),
        spelled=long,
        where=module.where(call),
        module=module,
        default=default,
        flag=flag or _name_of(call.func) in ("DEFINE_bool", "DEFINE_boolean"),
        kind=ast.unparse(told["type"]) if "type" in told else "",
        also=tuple(text for text in dashed if text != long),
    )
