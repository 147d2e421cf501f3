"""The lines of the SDK for one script, as edits of its text: a callback, or the three lines of a loop.

Only places that are plain to see are edited; otherwise the answer is why not. The result is parsed again.
"""

import ast
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from faultrun.adopt.program import KnownProgram
from faultrun.adopt.source.python_code import PythonModule
from faultrun.adopt.source.sdk_loop import GUARDS, loop_patches
from faultrun.adopt.source.source_edit import SourceText
from faultrun.text.patch import Patch, patched

_IMPORT = "from faultrun import sdk"
_PAGE = "faultrun docs make-your-script-fault-tolerant has them to be put in by hand"
_FOLDER = "checkpoints"
_SIMPLE = (ast.Name, ast.Attribute, ast.Call, ast.Constant, ast.Subscript)


@dataclass(frozen=True, slots=True, kw_only=True)
class SdkLines:
    """A file's text before and after. ``folder`` is where the lines save, "" where that was known before.

    ``why_not`` says why nothing is changed; "" where something is. ``resumes``: they resume, too.
    """

    module: PythonModule | None = None
    before: str = ""
    after: str = ""
    folder: str = ""
    resumes: bool = False
    why_not: str = ""


class _NoPlace(Exception):
    """The script's shape is not one of those that are edited; the text says which place is missing."""


@dataclass(frozen=True, slots=True)
class _Edit:
    patches: Sequence[Patch]
    folder: str = ""
    resumes: bool = False


def sdk_lines(program: KnownProgram, text_of: "dict[str, str]") -> SdkLines:
    """The edit for the program; ``text_of`` are the texts of its modules by the name that is shown."""
    if not program.code.modules:
        return SdkLines(why_not=f"{program.shown} is not here, or no Python")
    if program.training.uses_sdk:
        return SdkLines(why_not=f"{program.shown} uses faultrun.sdk already")
    kind = _kind(program)
    why = ""
    for module in program.code.modules:
        text = text_of[module.shown]
        try:
            edit = _edit(kind, program, module, SourceText(text))
            after = patched(text, [*edit.patches, *_import(module, SourceText(text), edit)])
            ast.parse(after)
        except _NoPlace as error:
            why = why or str(error)
            continue
        except SyntaxError:
            why = why or f"{module.shown} could not be edited without breaking it"
            continue
        return SdkLines(module=module, before=text, after=after, folder=edit.folder, resumes=edit.resumes)
    return SdkLines(why_not=f"{why}; {_PAGE}")


def _kind(program: KnownProgram) -> str:
    names = {name.partition(".")[0] for name in program.imported}
    recipe = program.recipe.name if program.recipe is not None else ""
    if recipe in ("transformers", "lightning", "accelerate", "fabric"):
        return recipe
    return "mindspore" if "mindspore" in names else "torch"


def _edit(kind: str, program: KnownProgram, module: PythonModule, source: SourceText) -> _Edit:
    match kind:
        case "transformers":
            return _transformers(module, source)
        case "lightning":
            return _lightning(module, source)
        case "mindspore":
            return _mindspore(program, module, source)
        case _:
            return _loop(kind, program, module, source)


def _transformers(module: PythonModule, source: SourceText) -> _Edit:
    name, statement, call = _made(module, "Trainer", "a Trainer is made and given a name")
    lines = ("gasp = sdk.transformers.DyingGasp()  # saves when a peer dies", f"{name}.add_callback(gasp)")
    patches = [source.line_after(statement, *lines)]
    started = _method_calls(module, name, "train", module.owners[id(call)])
    patches += [_or_else(source, one, "resume_from_checkpoint", "gasp.checkpoint") for one in started]
    return _Edit(patches, resumes=bool(started))


def _lightning(module: PythonModule, source: SourceText) -> _Edit:
    name, statement, call = _made(module, "Trainer", "a Trainer is made and given a name")
    patches = [source.line_before(statement, "gasp = sdk.lightning.DyingGasp()  # saves when a peer dies")]
    patches.append(_callback(module, source, call, first=True))
    started = _method_calls(module, name, "fit", module.owners[id(call)])
    patches += [_or_else(source, one, "ckpt_path", "gasp.ckpt_path") for one in started]
    return _Edit(patches, resumes=bool(started))


def _mindspore(program: KnownProgram, module: PythonModule, source: SourceText) -> _Edit:
    calls = [one for one in module.calls if _called(one, "train") and _keyword(one, "callbacks") is not None]
    statement = _statement(module, calls[0]) if calls else None
    if statement is None:
        raise _NoPlace(f"no model.train(..., callbacks=...) is seen in {module.shown}")
    folder = program.training.saves[0].folder if program.training.saves else _FOLDER
    directory = f'f"{folder}/rank_{{get_rank()}}"'
    line = f'gasp = sdk.mindspore.DyingGasp(prefix="gasp", directory={directory})  # saves when a peer dies'
    patches = [source.line_before(statement, line), _callback(module, source, calls[0], first=False)]
    return _Edit(patches, folder="" if program.training.saves else folder)


def _loop(kind: str, program: KnownProgram, module: PythonModule, source: SourceText) -> _Edit:
    training = program.training
    if kind not in GUARDS:
        kind = "torch"
    if training.hand_over is not None or training.own or training.loads:
        raise _NoPlace(
            f"{program.shown} loads checkpoints of its own: guard.resume(load=...) needs a function for them"
        )
    folder = posixpath.normpath(f"{training.saves[0].folder}/gasps") if training.saves else _FOLDER
    found = loop_patches(kind, module, source, folder)
    if isinstance(found, str):
        raise _NoPlace(found)
    return _Edit(found, folder=folder, resumes=True)


def _made(module: PythonModule, ending: str, what: str) -> tuple[str, ast.stmt, ast.Call]:
    """The statement ``name = ...Trainer(...)``."""
    for node in module.nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                if module.dotted(call.func).rpartition(".")[2].endswith(ending):
                    return name, node, call
            case _:
                pass
    raise _NoPlace(f"no place in {module.shown} where {what}")


def _method_calls(module: PythonModule, name: str, method: str, owner: object) -> list[ast.Call]:
    """``name.method(...)`` in the same function."""
    return [
        one
        for one in module.calls
        if isinstance(one.func, ast.Attribute)
        and one.func.attr == method
        and isinstance(one.func.value, ast.Name)
        and one.func.value.id == name
        and module.owners[id(one)] is owner
    ]


def _called(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == name


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == name), None)


def _or_else(source: SourceText, call: ast.Call, keyword: str, first: str) -> Patch:
    """``keyword=first``, or ``first or`` what stands there now."""
    given = _keyword(call, keyword)
    if given is None:
        return source.argument(call, f"{keyword}={first}")
    written = source.of(given)
    if isinstance(given, ast.Constant) and given.value is None:
        return source.replaced(given, first)
    return source.replaced(given, f"{first} or {written if isinstance(given, _SIMPLE) else f'({written})'}")


def _callback(module: PythonModule, source: SourceText, call: ast.Call, *, first: bool) -> Patch:
    given = _keyword(call, "callbacks")
    if given is None:
        if any(one.arg is None for one in call.keywords):
            raise _NoPlace(f"{module.where(call)} may be given callbacks by ** already")
        return source.argument(call, "callbacks=[gasp]")
    if isinstance(given, ast.List):
        if not given.elts:
            return source.replaced(given, "[gasp]")
        at = source.start(given.elts[0]) if first else source.end(given.elts[-1])
        return Patch(start=at, end=at, new="gasp, " if first else ", gasp")
    if isinstance(given, ast.Name):
        scope = module.owners[id(given)]
        bound = [*module.bound(given.id, scope), *(module.bound(given.id, None) if scope is not None else ())]
        if any(isinstance(one, ast.List | ast.ListComp) for one in bound):
            written = f"[gasp, *{given.id}]" if first else f"[*{given.id}, gasp]"
            return source.replaced(given, written)
    raise _NoPlace(f"{module.where(given)}: nobody can tell whether {ast.unparse(given)} is a list")


def _statement(module: PythonModule, call: ast.Call) -> ast.stmt | None:
    """The innermost statement around a call."""
    around = [
        node
        for node in module.nodes
        if isinstance(node, ast.Expr | ast.Assign | ast.Return | ast.AnnAssign)
        and any(part is call for part in ast.walk(node))
    ]
    return around[-1] if around else None


def _import(module: PythonModule, source: SourceText, edit: _Edit) -> list[Patch]:
    """The SDK's import behind the last one of the top, and MindSpore's get_rank where the edit needs it."""
    lines = [_IMPORT]
    if any("get_rank()" in one.new for one in edit.patches) and "get_rank" not in module.imports:
        lines.insert(0, "from mindspore.communication import get_rank")
    if any(one for one in module.nodes if isinstance(one, ast.Name) and one.id == "sdk"):
        raise _NoPlace(f"{module.shown} uses the name sdk for something else")
    imports = [one for one in module.tree.body if isinstance(one, ast.Import | ast.ImportFrom)]
    if imports:
        return [source.line_after(imports[-1], *lines)]
    body = module.tree.body
    first = body[0]
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return [source.line_after(first, "", *lines) if is_text else source.line_before(first, *lines, "")]
