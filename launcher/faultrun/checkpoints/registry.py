"""Which formats there are: ours in the order they are asked, then the user's from entry points."""

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from faultrun.checkpoints.format import Format
from faultrun.errors import ConfigError
from faultrun.model.spec.run_spec import Recovery

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "faultrun.checkpoint_formats"
"""Entry point group of users' formats; each value names an object with the methods of ``Format``."""

BUILTIN = (
    "faultrun_manifest:GASP_MANIFEST",
    "mindspore.ttp:TTP",
    "deepspeed:DEEPSPEED",
    "deepspeed_universal:DEEPSPEED_UNIVERSAL",
    "megatron:MEGATRON",
    "verl:VERL",
    "mindspore.mindformers:MINDFORMERS",
    "folder_of_parts:FOLDER",
    "mindspore.ckpt:MINDSPORE_CKPT",
    "safetensors:SAFETENSORS",
    "torch.dcp:TORCH_DCP",
    "torch.saved_file:TORCH_FILE",
    "tensorflow:TENSORFLOW",
)
"""Modules below ``formats``, each with the format that it defines, in the order to ask them."""
_SAVES, _PATTERN = "faultrun", "pattern"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Formats in the order they are asked, and what could not be loaded, in words for people."""

    formats: tuple[Format, ...]
    broken: tuple[str, ...] = ()


def builtin_formats() -> tuple[Format, ...]:
    """Every format that comes with faultrun."""
    return tuple(map(_builtin, BUILTIN))


def load_registry(extra: Sequence[Format] = ()) -> Registry:
    """First ``extra`` (patterns of the command line), then ours, then those of installed packages."""
    formats: list[Format] = [*extra, *builtin_formats()]
    broken: list[str] = []
    for point in _entry_points():
        try:
            formats.append(_checked(point.load()))
        except Exception as err:  # noqa: BLE001, PERF203 - a user's package may fail in any way while it is imported
            why = f"{type(err).__name__}: {err}"
            broken.append(f"checkpoint format {point.name} ({point.value}) left out: {why}")
    return Registry(formats=tuple(formats), broken=tuple(broken))


def registry_for(recovery: Recovery) -> Registry:
    """The formats that count in a run. ConfigError where its recipe names one that there is not.

    Saves of the SDK count under any recipe.
    """
    from faultrun.checkpoints.formats.user_pattern import Pattern  # noqa: PLC0415 - few runs have one

    registry = load_registry((Pattern(recovery.pattern),) if recovery.pattern else ())
    if not recovery.formats:
        return registry
    known = [one.name for one in registry.formats]
    unknown = [name for name in recovery.formats if name not in known]
    if unknown:
        because = f"the recipe names {unknown[0]}, the formats are {', '.join(known)}"
        raise ConfigError(
            f"no checkpoint format {unknown[0]}", because=because, hint="faultrun recipes show NAME"
        )
    counting = {*recovery.formats, _SAVES, _PATTERN}
    return replace(registry, formats=tuple(one for one in registry.formats if one.name in counting))


def _entry_points() -> "Iterable[EntryPoint]":
    """Look into entry_points.txt files, as importlib.metadata would, at a tenth of its cost."""
    for place in sys.path:
        for told in Path(place or ".").glob("*.*-info/entry_points.txt"):
            with suppress(OSError):
                if f"[{GROUP}]" in told.read_text(encoding="utf-8", errors="replace"):
                    from importlib.metadata import entry_points  # noqa: PLC0415 - costs megabytes

                    return entry_points(group=GROUP)
    return ()


def _builtin(place: str) -> Format:
    module, _, name = place.partition(":")
    return cast("Format", getattr(import_module(f"faultrun.checkpoints.formats.{module}"), name))


def _checked(candidate: object) -> Format:
    missing = [name for name in ("name", "claim", "read", "verify") if not hasattr(candidate, name)]
    if missing:
        raise TypeError(f"it has no {', '.join(missing)}")
    return cast("Format", candidate)
