"""Which framework a program trains with, read from its imports; nothing of it is run or imported.

Local modules that the program imports are read too, one level deep. Does not decide what a framework needs:
that is each framework's environment contract.
"""

import ast
import importlib.machinery
import sys
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from faultrun.model.spec.run_spec import Framework

_MAX_BYTES, _MAX_LOCAL_MODULES = 4 << 20, 64

_BUILT_ON = {
    Framework.MINDSPORE: ("mindformers", "mindnlp", "mindcv", "mindocr", "mindyolo", "mindone"),
    Framework.TORCH: (
        *("accelerate", "colossalai", "composer", "deepspeed", "diffusers", "fairscale", "lightning"),
        *("lightning_fabric", "megatron", "peft", "pytorch_lightning", "sentence_transformers", "timm"),
        *("torchaudio", "torchft", "torchtitan", "torchtune", "torchvision", "transformers", "trl"),
    ),
}
_THEMSELVES = {
    "mindspore": Framework.MINDSPORE,
    "torch": Framework.TORCH,
    "torch_npu": Framework.TORCH,
    "tensorflow": Framework.TENSORFLOW,
    "npu_bridge": Framework.TENSORFLOW,
}
"""The frameworks, not what is built on them: transformers' tokenizers serve any framework."""

_PACKAGES = {**_THEMSELVES, **{name: one for one, names in _BUILT_ON.items() for name in names}}

_DISTRIBUTED = (
    *("mindspore.communication.", "mindspore.mint.distributed.", "torch.distributed.", "torch.nn.parallel."),
    *("tensorflow.distribute.", "npu_bridge.", "deepspeed.", "accelerate."),
    *("lightning.", "pytorch_lightning."),
)
"""A program may import two frameworks; the one whose processes talk to each other is the one that trains."""

_ORDER = (Framework.MINDSPORE, Framework.TORCH, Framework.TENSORFLOW)
"""Between equals: MindSpore code borrows torch's datasets, torch code borrows TensorFlow's TensorBoard."""


class UnreadableSource(Exception):
    """A file whose imports stay unknown; the text says why."""


def detect(program: Path, search: Sequence[Path]) -> Framework:
    """Read the imports of ``program`` and of the local modules it imports.

    ``search`` are the folders from which the program imports: its own, or the working directory for ``-m``. A
    file that Python cannot parse is ``PLAIN``: it will say so itself when it runs.
    """
    try:
        names = read_imports(program)
    except UnreadableSource:
        return Framework.PLAIN
    if (found := _judge(names)) is not None and found[1]:
        return found[0]
    local = [found[0]] if found is not None else []
    for module in local_modules(names, program, search):
        try:
            theirs = _judge(read_imports(module))
        except UnreadableSource:
            continue
        if theirs is not None and theirs[1]:
            return theirs[0]
        if theirs is not None:
            local.append(theirs[0])
    return min(local, key=_ORDER.index, default=Framework.PLAIN)


def find_module(module: str, search: Sequence[str]) -> Path | None:
    """The file that ``python -m module`` would run, found without importing anything of it.

    ``search`` is a ``sys.path``. Editable installs are found through their own finders.
    """
    found = _spec(module, search) if all(module.split(".")) else None
    if found is not None and found.submodule_search_locations is not None:
        found = _spec(f"{module}.__main__", search)
    if found is None or not found.origin or not found.origin.endswith(".py"):
        return None
    return Path(found.origin)


def _spec(module: str, search: Sequence[str]) -> importlib.machinery.ModuleSpec | None:
    """Walk down the packages, each part by its own name: a namespace would want its parent imported."""
    top, *inner = module.split(".")
    others = (one for one in sys.meta_path if one is not importlib.machinery.PathFinder)
    found = importlib.machinery.PathFinder.find_spec(top, search) or next(
        (found for finder in others if (found := finder.find_spec(top, None)) is not None), None
    )
    for part in inner:
        if found is None or found.submodule_search_locations is None:
            return None
        found = importlib.machinery.PathFinder.find_spec(part, list(found.submodule_search_locations))
    return found


def frameworks_of(names: Sequence[str]) -> set[Framework]:
    """The frameworks whose packages are among imported ``names``."""
    return {_PACKAGES[top] for name in names if (top := name.split(".")[0]) in _PACKAGES}


def _judge(names: Sequence[str]) -> tuple[Framework, bool] | None:
    """The framework that ``names`` speak for, and whether they also speak of distributed training."""
    if not (known := [name for name in names if name.split(".")[0] in _PACKAGES]):
        return None
    spread = [name for name in known if f"{name}.".startswith(_DISTRIBUTED)]
    itself = [name for name in known if name.split(".")[0] in _THEMSELVES]
    return min(frameworks_of(spread or itself or known), key=_ORDER.index), bool(spread)


def read_imports(file: Path) -> list[str]:
    """Absolute dotted names that a file imports or, after ``import torch``, reaches as ``torch.distributed``.

    Relative imports keep their dots. Raises UnreadableSource.
    """
    try:
        now = file.stat()
    except OSError as error:
        raise UnreadableSource(error.strerror or str(error)) from None
    return list(_imports(file, now.st_ino, now.st_mtime_ns, now.st_size))


@lru_cache(maxsize=256)
def _imports(file: Path, *_stamp: int) -> tuple[str, ...]:
    """Read a file's imports once while its ``_stamp`` (inode, mtime, size) stays: parsing it is slow."""
    names: list[str] = []
    bound: dict[str, str] = {}
    reached: list[tuple[str, str]] = []
    for node in ast.walk(read_tree(file)):
        match node:
            case ast.Import(names=aliases):
                names += [alias.name for alias in aliases]
                bound.update({alias.asname or alias.name: alias.name for alias in aliases})
            case ast.ImportFrom(module=module, names=aliases, level=level):
                package = "." * level + (module or "")
                joint = "" if package.endswith(".") else "."
                names += [f"{package}{joint}{alias.name}" for alias in aliases]
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                reached.append((name, attribute))
    return (*names, *(f"{bound[name]}.{attribute}" for name, attribute in reached if name in bound))


def read_tree(file: Path) -> ast.Module:
    """Parse a Python file. Raises UnreadableSource."""
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise UnreadableSource("it is larger than 4 MiB")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes are the worker's to complain about
            return ast.parse(content, filename=str(file))
    except SyntaxError as error:
        raise UnreadableSource(f"{error.msg} (line {error.lineno})") from None
    except OSError as error:
        raise UnreadableSource(error.strerror or str(error)) from None
    except (ValueError, RecursionError) as error:
        raise UnreadableSource(str(error)) from None


def local_modules(names: Sequence[str], program: Path, search: Sequence[Path]) -> Iterator[Path]:
    """Files beside the program that ``names`` may mean: a module, a package, or a name inside either."""
    seen: set[Path] = {program}
    for name in names:
        dots = len(name) - len(name.lstrip("."))
        folders = [program.parents[dots - 1]] if 0 < dots <= len(program.parents) else list(search)
        parts = name.lstrip(".").split(".")
        for folder in folders:
            for file in _candidates(folder, parts):
                if file not in seen and len(seen) <= _MAX_LOCAL_MODULES and file.is_file():
                    seen.add(file)
                    yield file


def _candidates(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    for length in range(1, len(parts) + 1):
        module = folder.joinpath(*parts[:length])
        yield module.with_name(f"{module.name}.py")
        yield module / "__init__.py"
