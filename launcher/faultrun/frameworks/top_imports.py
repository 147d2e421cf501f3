"""What a program imports at its top from installed packages: what its standbys import before its turn.

Read from the source; nothing is run or imported. Statements are kept as they are written, since packages such
as transformers load a part only when it is named. Does not say what may be preloaded: each standby looks at
what an import has done to it.
"""

import ast
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from faultrun.frameworks.detect import UnreadableSource, local_modules, read_tree
from faultrun.frameworks.environ_settings import names_set

_MOST, _LONGEST, _DEEPEST = 128, 2000, 3
_OURS = "faultrun"
_HARMLESS = frozenset({"logging", "os", "print", "warnings"})
_OTHER_BYTES = 15 << 20
_HEAVY_BYTES = {
    "lightning": 200 << 20,
    "pytorch_lightning": 200 << 20,
    "transformers": 130 << 20,
    "deepspeed": 200 << 20,
    "pandas": 80 << 20,
    "scipy": 60 << 20,
    "sklearn": 100 << 20,
    "torchvision": 60 << 20,
}
"""PSS on top of torch, measured (lightning 135 MiB, transformers' Trainer 85) or taken, and a half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopImports:
    """Import statements in the order in which they run; ``sets`` are variables that the program sets."""

    statements: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()

    @property
    def estimate_bytes(self) -> int:
        """What they are taken to need beside the framework."""
        packages = {statement.split()[1].partition(".")[0] for statement in self.statements}
        return sum(_HEAVY_BYTES.get(package, _OTHER_BYTES) for package in packages - {"torch"})


def top_imports(source: Path | None, search: Sequence[Path]) -> TopImports:
    """The imports of ``source`` and of the modules beside it that it imports at its top.

    None where it cannot be read, or where only running it would tell which variables it sets.
    """
    if source is None:
        return TopImports()
    reader = _Reader(search)
    try:
        statements = list(dict.fromkeys(reader.statements(source, _DEEPEST)))[:_MOST]
    except UnreadableSource:
        return TopImports()
    if None in reader.sets:
        return TopImports()
    return TopImports(statements=tuple(statements), sets=tuple(sorted(filter(None, reader.sets))))


@dataclass(slots=True)
class _Reader:
    search: Sequence[Path]
    sets: set[str | None] = field(default_factory=set)
    seen: set[Path] = field(default_factory=set)

    def statements(self, file: Path, depth: int) -> Iterator[str]:
        """In order, up to the first line that may change what a later import means."""
        self.seen.add(file)
        tree = read_tree(file)
        self.sets.update(name for _, name in names_set(tree))
        for node in _top(tree.body):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from self._of(node, file, depth)
            elif _may_matter(node):
                return

    def _of(self, node: ast.Import | ast.ImportFrom, file: Path, depth: int) -> Iterator[str]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from self._named(f"import {alias.name}", alias.name, [alias.name], file, depth)
            return
        module = "." * node.level + (node.module or "")
        joint = "" if module.endswith(".") else "."
        text = ast.unparse(node)
        inner = [f"{module}{joint}{alias.name}" for alias in node.names]
        yield from self._named(text, module, [module, *inner], file, depth)

    def _named(self, text: str, module: str, names: Sequence[str], file: Path, depth: int) -> Iterator[str]:
        if (top := module.partition(".")[0]) in sys.stdlib_module_names or top == _OURS:
            return
        if top and not any(_holds(folder, top) for folder in self.search):
            if len(text) <= _LONGEST:
                yield text
            return
        beside = [one for one in local_modules(names, file, self.search) if one not in self.seen]
        for module_file in beside if depth else ():
            with suppress(UnreadableSource):
                yield from self.statements(module_file, depth - 1)


def _top(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Top-level statements; of a ``try`` what it tries."""
    for node in body:
        if isinstance(node, ast.Try):
            yield from _top(node.body)
        else:
            yield node


def _may_matter(node: ast.stmt) -> bool:
    """A call for its effect, or a word about ``sys.path``: a later import may then mean another thing."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    for part in ast.walk(node):
        match part:
            case ast.Attribute(value=ast.Name(id="sys"), attr="path"):
                return True
    called = node.value if isinstance(node, ast.Expr) else None
    return isinstance(called, ast.Call) and _root(called) not in _HARMLESS


def _root(call: ast.Call) -> str:
    """The first name of what is called: ``warnings`` of ``warnings.filterwarnings(...)``."""
    part: ast.expr = call.func
    while isinstance(part, ast.Attribute | ast.Call):
        part = part.value if isinstance(part, ast.Attribute) else part.func
    return part.id if isinstance(part, ast.Name) else ""


def _holds(folder: Path, name: str) -> bool:
    """Whether the program's folder has a module of that name, whatever else is installed."""
    return (folder / f"{name}.py").is_file() or (folder / name).is_dir() or any(folder.glob(f"{name}.*.so"))
