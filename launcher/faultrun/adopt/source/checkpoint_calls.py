"""The calls that save and load checkpoints: ``torch.save``, ``ModelCheckpoint``, ``load_checkpoint``..."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from faultrun.adopt.source.python_code import PythonCode, PythonModule


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCall:
    """A call that saves or loads: the end of its dotted name, and which argument is the path.

    ``roots`` are the first parts that its name may have, as they are imported; empty: any. ``file``: the path
    is that of a file.
    """

    name: str
    position: int
    keywords: tuple[str, ...]
    roots: tuple[str, ...] = ()
    file: bool = True

    def is_called(self, dotted: str) -> bool:
        """Whether the full name ``dotted`` is one of its own."""
        own = not self.roots or dotted.startswith(tuple(f"{one}." for one in self.roots))
        return own and dotted.rpartition(".")[2] == self.name


_MS = ("mindspore", "ms")
SAVES = (
    CheckpointCall(name="save", position=1, keywords=("f",), roots=("torch", "torch_npu")),
    CheckpointCall(name="save_checkpoint", position=1, keywords=("ckpt_file_name",), roots=_MS),
    CheckpointCall(name="ModelCheckpoint", position=1, keywords=("directory",), roots=_MS, file=False),
    CheckpointCall(
        name="ModelCheckpoint",
        position=0,
        keywords=("dirpath",),
        roots=("lightning", "pytorch_lightning"),
        file=False,
    ),
    CheckpointCall(name="save_file", position=1, keywords=("filename",), roots=("safetensors",)),
    CheckpointCall(name="save", position=9, keywords=("checkpoint_id",), file=False),
    CheckpointCall(name="async_save", position=9, keywords=("checkpoint_id",), file=False),
    CheckpointCall(name="FileSystemWriter", position=0, keywords=("path",), file=False),
    CheckpointCall(name="save_checkpoint", position=0, keywords=("save_dir",), file=False),
    CheckpointCall(name="save_state", position=0, keywords=("output_dir",), file=False),
    CheckpointCall(
        name="CheckpointManager", position=1, keywords=("directory",), roots=("tensorflow", "tf"), file=False
    ),
    CheckpointCall(name="save_weights", position=0, keywords=("filepath",)),
    CheckpointCall(name="savez", position=0, keywords=("file",), roots=("numpy", "np")),
    CheckpointCall(name="TFTRegister", position=3, keywords=("directory",), file=False),
    CheckpointCall(name="ExceptionCheckpoint", position=9, keywords=("directory",), file=False),
)
LOADS = (
    CheckpointCall(name="load", position=0, keywords=("f",), roots=("torch", "torch_npu")),
    CheckpointCall(name="load_checkpoint", position=0, keywords=("ckpt_file_name", "load_dir")),
    CheckpointCall(name="load_state", position=0, keywords=("input_dir",)),
    CheckpointCall(name="load", position=9, keywords=("checkpoint_id",)),
    CheckpointCall(name="load", position=0, keywords=("path",), roots=("fabric", "self.fabric")),
    CheckpointCall(name="fit", position=9, keywords=("ckpt_path",)),
    CheckpointCall(name="train", position=9, keywords=("resume_from_checkpoint",)),
    CheckpointCall(name="load_from_checkpoint", position=0, keywords=("checkpoint_path",)),
    CheckpointCall(name="from_checkpoint", position=0, keywords=("path",)),
    CheckpointCall(name="load_file", position=0, keywords=("filename",), roots=("safetensors",)),
    CheckpointCall(name="restore", position=0, keywords=("save_path",), roots=("tensorflow", "tf")),
    CheckpointCall(name="load_weights", position=0, keywords=("filepath",)),
)


@dataclass(frozen=True, slots=True)
class CallOfPath:
    """A call that saves or loads, and the argument that is the path; ``file``: of a file, not of a folder."""

    module: PythonModule
    call: ast.Call
    path: ast.expr
    file: bool

    @property
    def where(self) -> str:
        """File and line."""
        return self.module.where(self.call)

    @property
    def name(self) -> str:
        """What is called, by its full name."""
        return self.module.dotted(self.call.func)


def saving_calls(code: PythonCode) -> Iterator[CallOfPath]:
    """Every call that saves, the SDK's too."""
    yield from _calls(code, SAVES)
    for module in code.modules:
        for call in module.calls:
            dotted = module.dotted(call.func)
            if dotted.startswith("faultrun.sdk."):
                path = next((one.value for one in call.keywords if one.arg == "directory"), None)
                if path is None and call.args and dotted.endswith("lightning.DyingGasp"):
                    path = call.args[0]
                if path is not None:
                    yield CallOfPath(module, call, path, file=False)


def loading_calls(code: PythonCode) -> Iterator[CallOfPath]:
    """Every call that loads."""
    return _calls(code, LOADS)


def _calls(code: PythonCode, kinds: Sequence[CheckpointCall]) -> Iterator[CallOfPath]:
    for module in code.modules:
        for call in module.calls:
            if isinstance(call.func, ast.Name) and code.function(call.func.id) is not None:
                continue  # a function of the script's own, in which the call stands that we want
            dotted = module.dotted(call.func)
            for kind in kinds:
                path = _path_of(call, kind) if kind.is_called(dotted) else None
                if path is not None:
                    yield CallOfPath(module, call, path, file=kind.file)
                    break


def _path_of(call: ast.Call, kind: CheckpointCall) -> ast.expr | None:
    named = next((one.value for one in call.keywords if one.arg in kind.keywords), None)
    if named is not None:
        return named
    plain = not any(isinstance(one, ast.Starred) for one in call.args)
    return call.args[kind.position] if plain and kind.position < len(call.args) else None
