"""Which environment variables a source sets, read from its tree."""

import ast
from collections.abc import Iterator


def names_set(tree: ast.Module) -> Iterator[tuple[int, str | None]]:
    """Lines and names; None for a name that only running it would tell."""
    for node in ast.walk(tree):
        for key in _keys(node):
            known = str(key.value) if isinstance(key, ast.Constant) else None
            yield getattr(node, "lineno", 0), known


def _keys(node: ast.AST) -> Iterator[ast.expr | None]:
    """The names that ``node`` sets in ``os.environ``; None for those that only running it would tell."""
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            places = (one for one in targets if isinstance(one, ast.Subscript))
            yield from (one.slice for one in places if _is_environ(one.value))
        case ast.Call(func=ast.Attribute(value=owner, attr="setdefault" | "pop"), args=[key, *_]) if (
            _is_environ(owner)
        ):
            yield key
        case ast.Call(func=ast.Attribute(value=owner, attr="update")) if _is_environ(owner):
            yield from _updated(node)
        case ast.Call(func=ast.Attribute(attr="putenv"), args=[key, *_]):
            yield key
        case _:
            return


def _updated(call: ast.Call) -> Iterator[ast.expr | None]:
    yield from (ast.Constant(value=keyword.arg) if keyword.arg else None for keyword in call.keywords)
    for argument in call.args:
        yield from argument.keys if isinstance(argument, ast.Dict) else (None,)


def _is_environ(owner: ast.expr) -> bool:
    return getattr(owner, "attr", getattr(owner, "id", "")) == "environ"
