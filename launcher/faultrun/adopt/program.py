"""The program of a launch as its script tells it: what it imports, and the options that its parser declares.

Reads the script alone, not what it imports, and runs nothing. Where it saves and how it resumes is told by a
recipe, by words of the command and by files of settings, never by the source. Paths are as the training sees
them; what is in a container is looked for beside the file that names it.
"""

import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from faultrun.adopt.launch import FoundLaunch
from faultrun.adopt.script_source import ScriptOption, ScriptSource
from faultrun.configs.recipes.fill import RecipeFiller, Script
from faultrun.configs.recipes.recipe import recipe_for
from faultrun.configs.recipes.source_value import SourceCode
from faultrun.errors import ConfigError
from faultrun.files import bytes_from
from faultrun.frameworks.detect import UnreadableSource, find_module, frameworks_of, read_imports, read_tree
from faultrun.frameworks.program_files import program_sources
from faultrun.model.spec.run_spec import Framework

_LONGEST_PATH = 4096
_MAX_BYTES = 4 << 20
_RANKS = re.compile(rb"""["'](?:RANK|LOCAL_RANK|WORLD_SIZE)["']""")
_SHELLS = frozenset({"bash", "sh", "dash", "zsh"})
_SETTINGS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg")
_LAUNCHED = {
    "msrun": Framework.MINDSPORE,
    "torchrun": Framework.TORCH,
    "accelerate launch": Framework.TORCH,
    "deepspeed": Framework.TORCH,
    "fabric run": Framework.TORCH,
}
_IN_ORDER = (Framework.MINDSPORE, Framework.TORCH, Framework.TENSORFLOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearbyFiles:
    """Where names lead: ``root`` is the folder in which the training starts, as it is found here.

    ``beside`` are folders in which the files of a container may lie here.
    """

    root: Path
    beside: tuple[Path, ...] = ()

    def here(self, name: str) -> Path | None:
        """The file of that name, if it is here; of a container's path the longest end that is."""
        if not name or "\0" in name or len(name) > _LONGEST_PATH:
            return None
        parts = PurePosixPath(posixpath.normpath(name)).parts
        ends = (PurePosixPath(*parts[at:]) for at in range(1 if name.startswith("/") else 0, len(parts)))
        ways = [self.root / name, *(folder / end for end in ends for folder in self.beside)]
        return next((way for way in ways if os.path.isfile(way)), None)  # noqa: PTH113  it never raises

    def shown(self, path: Path) -> str:
        """The path as the training would write it, where that is shorter."""
        relative = os.path.relpath(path, self.root)
        return relative if len(relative) < len(str(path)) else str(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeFit:
    """A recipe that knows the training code, and what it comes to here.

    ``folders`` are empty where only the source would tell them; ``doubt`` is what the recipe lacks.
    """

    name: str
    why: str
    folders: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    pointers: tuple[str, ...] = ()
    rewrites: tuple[str, ...] = ()
    doubt: str = ""

    @property
    def hands_over(self) -> bool:
        """Whether the script learns from it where to resume."""
        return bool(self.arguments or self.pointers or self.rewrites)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProgram:
    """What is known of a program. ``script`` is its Python file or shell script here, None if it is not.

    ``source`` is None where it is no Python, or ``unread``. ``asks``: it asks faultrun where to resume.
    ``ranked`` is a file of it, or of a module beside it, that names the variables of a rank.
    """

    script: Path | None
    shown: str
    source: ScriptSource | None = None
    unread: str = ""
    framework: Framework = Framework.PLAIN
    recipe: RecipeFit | None = None
    imported: tuple[str, ...] = ()
    asks: bool = False
    ranked: str = ""

    @property
    def options(self) -> tuple[ScriptOption, ...]:
        """The options that its parser declares."""
        return self.source.options if self.source is not None else ()


def read_program(launch: FoundLaunch, places: NearbyFiles, environ: Mapping[str, str]) -> KnownProgram:
    """Look at the script of ``launch``."""
    script, meant = _script(launch, places), _LAUNCHED.get(launch.launcher)
    shown = places.shown(script) if script is not None else (launch.program[0] if launch.program else "")
    if script is None or script.suffix != ".py":
        return KnownProgram(script=script, shown=shown, framework=meant or Framework.PLAIN)
    try:
        source, names = ScriptSource(shown, read_tree(script)), tuple(read_imports(script))
    except UnreadableSource as error:
        unread = f"{shown}: {error}"
        return KnownProgram(script=script, shown=shown, unread=unread, framework=meant or Framework.PLAIN)
    return KnownProgram(
        script=script,
        shown=shown,
        source=source,
        framework=_framework(names, meant),
        recipe=_fit(names, script, _as_here(launch.program[1:], places), environ, places),
        imported=names,
        asks=source.asks_faultrun,
        ranked=_ranked(script, places),
    )


def _ranked(script: Path, places: NearbyFiles) -> str:
    files = program_sources((), script, (script.parent,))
    return next((places.shown(file) for file in files if _RANKS.search(bytes_from(file, 0, _MAX_BYTES))), "")


def _framework(names: Sequence[str], meant: Framework | None) -> Framework:
    """The framework that the script imports; that of the launcher where it does not contradict."""
    found = frameworks_of(names)
    if meant is not None and (meant in found or not found):
        return meant
    return next((one for one in _IN_ORDER if one in found), Framework.PLAIN)


def _script(launch: FoundLaunch, places: NearbyFiles) -> Path | None:
    if not launch.program:
        return None
    if launch.module:
        with suppress(OSError, ValueError):
            return find_module(launch.program[0], (str(places.root), *map(str, places.beside)))
        return None
    words = launch.program
    if PurePosixPath(words[0]).name in _SHELLS or PurePosixPath(words[0]).name.startswith("python"):
        words = tuple(word for word in words[1:] if not word.startswith("-"))
    return places.here(words[0]) if words else None


def _as_here(args: Sequence[str], places: NearbyFiles) -> tuple[str, ...]:
    """Arguments with the files of a container as they are called here."""
    found: list[str] = []
    for word in args:
        name, equals, value = word.partition("=")
        path = places.here(value or name) if (value or name).lower().endswith(_SETTINGS) else None
        found.append(f"{name}{equals}{path.absolute()}" if path and equals else word)
    return tuple(found)


def _typed(folders: Sequence[str], args: Sequence[str]) -> bool:
    """Whether all are, or lie below, what the command names."""
    words = {os.path.normpath(word.partition("=")[2] or word) for word in args}
    return all(not words.isdisjoint((folder, *map(str, Path(folder).parents))) for folder in folders)


def _fit(
    names: Sequence[str], script: Path, args: tuple[str, ...], environ: Mapping[str, str], places: NearbyFiles
) -> RecipeFit | None:
    found, shown = recipe_for(names), places.shown(script)
    if found is None:
        return None
    recipe, imported = found
    code = SourceCode((script,))
    filler = RecipeFiller(recipe, Script(path=shown, args=args, environ=environ, code=code))
    pointers = tuple(one.name for one in recipe.pointers)
    fit = RecipeFit(name=recipe.name, why=f"{shown} imports {imported}", pointers=pointers)
    try:
        folders = filler.checkpoint_dirs(1)
        told = not code.asked or _typed(folders, args)
        fit = replace(
            fit, folders=folders if told and not code.computed else (), arguments=filler.resume_args()
        )
        rewrites = [f"{places.shown(Path(one.file))}:{one.key}" for one in filler.rewrites()[0]]
    except ConfigError as error:
        return replace(fit, doubt=error.because)
    return replace(fit, rewrites=tuple(rewrites))
