"""A public noun has one definition: classes, constants and aliases at the top of the package's modules."""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "launcher" / "faultrun"


def main() -> int:
    """Name every noun that is defined twice, and where."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for noun, line in nouns(path.read_text(encoding="utf-8")):
            places[noun].append(f"{path.relative_to(PACKAGE)}:{line}")
    twice = {noun: where for noun, where in places.items() if len(where) > 1}
    for noun, where in sorted(twice.items()):
        sys.stdout.write(f"{noun} is defined {len(where)} times: {', '.join(where)}\n")
    return int(bool(twice))


def nouns(source: str) -> Iterator[tuple[str, int]]:
    """The public nouns that ``source`` defines, each with its line."""
    for node in ast.parse(source).body:
        match node:
            case ast.ClassDef(name=name):
                names = [name]
            case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar" | "ParamSpec"))):
                names = []
            case ast.Assign(targets=targets):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case _:
                names = []
        yield from ((name, node.lineno) for name in names if not name.startswith("_"))


if __name__ == "__main__":
    sys.exit(main())
