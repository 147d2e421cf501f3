"""One Python script as it is written: what it imports and calls, and which options its parser declares.

Reads this file alone, not what it imports, and runs nothing. Values are not followed: what the script does
with an option is not known here.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from faultrun.configs.recipes.source_value import DEFINES, OPTION_CALLS, PARSERS, name_of

_ADDS = OPTION_CALLS | {"Argument"}
_VARIABLES = "FAULTRUN_RESUME"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOption:
    """An option that the script declares. ``spelled`` is as a person types it, ``also`` other spellings.

    ``flag``: it takes no value; ``kind`` is the type as it is written. ``default`` is its literal value; None
    where it has none, or one that only a run could tell.
    """

    name: str
    spelled: str
    where: str
    default: str | bool | int | float | None = None
    flag: bool = False
    kind: str = ""
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScriptSource:
    """The tree of one file. ``shown`` names it in messages."""

    shown: str
    tree: ast.Module

    def where(self, node: ast.AST) -> str:
        """File and line, as compilers say it."""
        return f"{self.shown}:{getattr(node, 'lineno', 1)}"

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

    @cached_property
    def options(self) -> tuple[ScriptOption, ...]:
        """Every option that is declared, and every field of a class where a parser reads classes."""
        reads_classes = any(name_of(call.func) in PARSERS for call in self.calls)
        return (*self._declared(), *(self._fields() if reads_classes else ()))

    def option(self, name: str) -> ScriptOption | None:
        """The option of this name."""
        return next((one for one in self.options if one.name == name), None)

    @cached_property
    def asks_faultrun(self) -> bool:
        """Whether it calls ``resume`` of the SDK, or names the variables that tell where to resume."""
        uses_sdk = any(one.partition(".")[0] == "faultrun" for one in self.imports.values())
        resumes = (isinstance(one.func, ast.Attribute) and one.func.attr == "resume" for one in self.calls)
        return (uses_sdk and any(resumes)) or any(text.startswith(_VARIABLES) for text in self.texts)

    @cached_property
    def texts(self) -> dict[str, str]:
        """Its literal texts, each with the last place where it stands."""
        constants = (node for node in self.nodes if isinstance(node, ast.Constant))
        return {node.value: self.where(node) for node in constants if isinstance(node.value, str)}

    def _declared(self) -> Iterator[ScriptOption]:
        renamed = {
            node.targets[0].id
            for node in self.nodes
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Attribute)
            and node.value.attr in _ADDS
        }
        for call in self.calls:
            if (name := name_of(call.func)) in _ADDS or name in renamed or name.startswith(DEFINES):
                yield from self._of_call(call, absl=name.startswith(DEFINES))

    def _of_call(self, call: ast.Call, *, absl: bool) -> Iterator[ScriptOption]:
        values = (one.value for one in call.args if isinstance(one, ast.Constant))
        texts = [one for one in values if isinstance(one, str)]
        told = {one.arg: one.value for one in call.keywords if one.arg}
        if absl:
            texts = [f"--{texts[0]}"] if texts else []
            told.setdefault("default", call.args[1]) if len(call.args) > 1 else None
        dashed = [text.partition("/")[0] for text in texts if text.startswith("-")]
        long = next((text for text in dashed if text.startswith("--")), next(iter(dashed), ""))
        if not long:
            return
        if (default := told.get("default")) is None and name_of(call.func) == "Option" and call.args:
            default = call.args[0]  # typer: the default stands first
        dest = told.get("dest")
        yield ScriptOption(
            name=str(dest.value) if isinstance(dest, ast.Constant) else long.lstrip("-").replace("-", "_"),
            spelled=long,
            where=self.where(call),
            default=_literal(default),
            flag=_is_flag(call, told),
            kind=ast.unparse(told["type"]) if "type" in told else "",
            also=tuple(text for text in dashed if text != long),
        )

    def _fields(self) -> Iterator[ScriptOption]:
        for node in self.nodes:
            if not isinstance(node, ast.ClassDef):
                continue
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield ScriptOption(
                        name=line.target.id,
                        spelled=f"--{line.target.id}",
                        where=self.where(line),
                        default=_literal(_field_default(line.value)),
                        kind=ast.unparse(line.annotation),
                    )


def _literal(node: ast.expr | None) -> str | bool | int | float | None:
    match node:
        case ast.Constant(value=str() | bool() | int() | float() as value):
            return value
        case _:
            return None


def _field_default(value: ast.expr | None) -> ast.expr | None:
    """Look through ``field(default=...)``."""
    if isinstance(value, ast.Call) and name_of(value.func) in ("field", "Field"):
        return next((one.value for one in value.keywords if one.arg == "default"), None)
    return value


def _is_flag(call: ast.Call, told: dict[str, ast.expr]) -> bool:
    if isinstance((action := told.get("action")), ast.Constant) and isinstance(action.value, str):
        return action.value not in ("store", "append", "extend")
    if isinstance(told.get("is_flag"), ast.Constant) and ast.unparse(told["is_flag"]) == "True":
        return True
    optional = action is not None and "BooleanOptionalAction" in ast.unparse(action)
    return optional or name_of(call.func) in ("DEFINE_bool", "DEFINE_boolean")
