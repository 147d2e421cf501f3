"""The three lines for a loop of one's own, each in its place: ``protect``, ``batches``, ``step``."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from faultrun.adopt.source.call_arguments import Function
from faultrun.adopt.source.python_code import PythonModule
from faultrun.adopt.source.source_edit import SourceText
from faultrun.text.patch import Patch

GUARDS = ("torch", "accelerate", "fabric")
"""The kinds of loops that a guard knows."""

_AROUND = frozenset({"enumerate", "tqdm", "track", "iter", "trange"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop:
    """``for epoch in range(...)`` around ``for batch in loader``, in whose ``block`` ``steps`` update."""

    epochs: ast.For
    epoch: str
    batches: ast.For
    loader: ast.expr
    block: list[ast.stmt]
    steps: list[ast.Expr]
    optimizer: str


def loop_patches(kind: str, module: PythonModule, source: SourceText, folder: str) -> list[Patch] | str:
    """The edits; or why there are none, as a sentence."""
    loop = next(_loops(module), None)
    if loop is None:
        return (
            f"no `for epoch in range(...)` around `for batch in loader` with an optimizer.step() is seen in "
            f"{module.shown}"
        )
    owner = module.owners[id(loop.epochs)]
    guarded = _guarded(kind, module, loop, owner)
    if guarded is None:
        return f"{module.where(loop.epochs)}: nobody can tell which model {loop.optimizer} updates"
    call = loop.epochs.iter
    assert isinstance(call, ast.Call)
    objects = _objects(kind, module, loop, owner)
    first = f'guard = {guarded}, directory="{folder}"{objects})  # saves when a peer dies'
    patches = [source.line_before(loop.epochs, first, "guard.resume()")]
    if len(call.args) == 1:
        start = source.start(call.args[0])
        patches.append(Patch(start=start, end=start, new="guard.epoch, "))
    else:
        patches.append(source.replaced(call.args[0], f"max({source.of(call.args[0])}, guard.epoch)"))
    patches.append(source.replaced(loop.loader, f"guard.batches({source.of(loop.loader)}, {loop.epoch})"))
    patches.append(source.line_after(loop.steps[-1], "guard.step()"))
    return patches


def _loops(module: PythonModule) -> Iterator[_Loop]:
    for outer in module.nodes:
        if not (isinstance(outer, ast.For) and isinstance(outer.target, ast.Name) and _counts(outer.iter)):
            continue
        for inner in (one for one in ast.walk(outer) if isinstance(one, ast.For) and one is not outer):
            loader = _loader(inner.iter)
            found = _updating(inner)
            if loader is not None and found is not None:
                block, steps, optimizer = found
                yield _Loop(
                    epochs=outer,
                    epoch=outer.target.id,
                    batches=inner,
                    loader=loader,
                    block=block,
                    steps=steps,
                    optimizer=optimizer,
                )


def _counts(node: ast.expr) -> bool:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"
    return called and isinstance(node, ast.Call) and len(node.args) in (1, 2)


def _loader(node: ast.expr) -> ast.expr | None:
    """What is looped over, inside of ``enumerate`` and progress bars; None where it is no name."""
    while isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Name | ast.Attribute):
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        if name not in _AROUND:
            return None
        node = node.args[0]
    return node if isinstance(node, ast.Name | ast.Attribute) else None


def _updating(inner: ast.For) -> tuple[list[ast.stmt], list[ast.Expr], str] | None:
    """The block with ``optimizer.step()``, and the calls there that end an update."""
    for node in ast.walk(inner):
        for block in _blocks(node):
            steps = [one for one in block if isinstance(one, ast.Expr) and _ends_update(one.value)]
            names = [name for one in steps if (name := _optimizer(one.value))]
            if names:
                return block, steps, names[0]
    return None


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def _ends_update(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("step", "update")
    )


def _optimizer(node: ast.expr) -> str:
    """``optimizer`` of ``optimizer.step()`` and of ``scaler.step(optimizer)``."""
    match node:
        case ast.Call(func=ast.Attribute(attr="step"), args=[ast.Name(id=name), *_]):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="step"), args=[]) if (
            "sched" not in name
        ):
            return name
        case _:
            return ""


def _guarded(kind: str, module: PythonModule, loop: _Loop, owner: Function | None) -> str | None:
    """``sdk.torch.protect(model, optimizer`` without its end."""
    if kind == "accelerate":
        name = _named(module, "Accelerator")
        return None if name is None else f"sdk.accelerate.protect({name}"
    model = _model(module, loop.optimizer, owner)
    if model is None:
        return None
    if kind == "fabric":
        name = _named(module, "Fabric")
        return None if name is None else f"sdk.lightning.protect({name}, {model}, {loop.optimizer}"
    return f"sdk.torch.protect({model}, {loop.optimizer}"


def _named(module: PythonModule, kind: str) -> str | None:
    for node in module.nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=func)) if module.dotted(
                func
            ).endswith(kind):
                return name
            case _:
                pass
    return None


def _model(module: PythonModule, optimizer: str, owner: Function | None) -> str | None:
    """The name whose ``parameters()`` the optimizer was made with."""
    for value in (*module.bound(optimizer, owner), *module.bound(optimizer, None)):
        for node in ast.walk(value) if value is not None else ():
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="parameters")):
                    return name
                case _:
                    pass
    return None


def _objects(kind: str, module: PythonModule, loop: _Loop, owner: Function | None) -> str:
    """Schedulers and scalers that are stepped in the loop; accelerate knows its own."""
    if kind == "accelerate":
        return ""
    found: dict[str, str] = {}
    for node in ast.walk(loop.epochs):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="step" | "update")) if (
                name != loop.optimizer
            ):
                made = [one for one in module.bound(name, owner) if isinstance(one, ast.Call)]
                if made:
                    found[name] = name
            case _:
                pass
    return (
        f", objects={{{', '.join(f'{chr(34)}{name}{chr(34)}: {name}' for name in found)}}}" if found else ""
    )
