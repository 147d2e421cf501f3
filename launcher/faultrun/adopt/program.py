"""The program of a launch as its files tell it: source, configuration, where it saves, how it resumes.

Reads files and runs nothing. Paths are as the training sees them; what is in a container is looked for beside
the file that names it.
"""

import ast
import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from faultrun.adopt.launch import FoundLaunch
from faultrun.adopt.source.config_keys import is_config, look_below, look_up_in
from faultrun.adopt.source.given_words import given_text
from faultrun.adopt.source.python_code import PythonCode, PythonModule, read_code
from faultrun.adopt.source.recipe_marks import marked_recipe
from faultrun.adopt.source.trace import ValueTracer
from faultrun.adopt.source.traced import needs_shell
from faultrun.adopt.source.training import Training, read_training
from faultrun.configs.recipes.detect import recipe_for
from faultrun.configs.recipes.fill import RecipeFiller, Script
from faultrun.configs.recipes.recipe import read_recipe, recipe_file
from faultrun.configs.recipes.source_value import SourceCode
from faultrun.errors import ConfigError
from faultrun.files import bytes_from
from faultrun.frameworks.detect import UnreadableSource, detect, find_module, read_imports
from faultrun.frameworks.program_files import program_sources
from faultrun.model.spec.run_spec import Framework

_MOST_BYTES = 4 << 20
_LONGEST_NAME = 256
_LONGEST_PATH = 4096
_SHELLS = frozenset({"bash", "sh", "dash", "zsh"})


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
    """A recipe that knows the training code, and what it comes to here; ``doubts`` say what it cannot tell.

    ``marked``: it was known by more than an import, and counts even where the script asks faultrun itself.
    ``by_sdk``: lines of the SDK hand the checkpoint over.
    """

    name: str
    why: str
    folders: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    pointers: tuple[str, ...] = ()
    rewrites: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    marked: bool = False
    by_sdk: bool = False

    @property
    def hands_over(self) -> bool:
        """Whether the script learns from it where to resume."""
        return bool(self.arguments or self.pointers or self.rewrites or self.by_sdk)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProgram:
    """What is known of a program. ``script`` is its Python file or shell script here, None if it is not."""

    script: Path | None
    shown: str
    code: PythonCode = field(default_factory=lambda: PythonCode(()))
    training: Training = field(default_factory=Training)
    framework: Framework = Framework.PLAIN
    recipe: RecipeFit | None = None
    imported: tuple[str, ...] = ()


def read_program(launch: FoundLaunch, places: NearbyFiles, environ: Mapping[str, str]) -> KnownProgram:
    """Look through the program of ``launch``."""
    script = _script(launch, places)
    shown = places.shown(script) if script is not None else (launch.program[0] if launch.program else "")
    if script is None or script.suffix != ".py":
        return KnownProgram(script=script, shown=shown)
    search = (Path(places.root),) if launch.module else (script.parent,)
    files = [one for one in program_sources((str(script),), script, search) if one.suffix == ".py"]
    code = read_code(files, {file: places.shown(file) for file in files})
    args = launch.program[1:]
    settings = _config_files(args, code, places)
    keys = look_up_in(settings, places.shown)
    tracer = ValueTracer(
        code=code,
        given=lambda name: given_text(args, code, name),
        keys=keys,
        below=look_below(settings),
        variables={**dict(launch.inherited), **dict(launch.environment)},
    )
    training = read_training(tracer, _text)
    names = tuple(_imported(files))
    packages = {name.partition(".")[0] for name in names}
    marked = marked_recipe(code, keys, packages.__contains__)
    around = Script(
        path=places.shown(script), args=_as_here(args, places), environ=environ, code=SourceCode(files)
    )
    return KnownProgram(
        script=script,
        shown=shown,
        code=code,
        training=training,
        framework=detect(script, search).framework,
        recipe=_fit(names, marked, around, places),
        imported=names,
    )


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
        path = places.here(value or name) if is_config(value or name) else None
        found.append(f"{name}{equals}{path.absolute()}" if path and equals else word)
    return tuple(found)


def _config_files(args: Sequence[str], code: PythonCode, places: NearbyFiles) -> list[Path]:
    """Files of settings: those that the command names, else those that the source names.

    The default of an option that was typed does not count, even where only a shell knows what was typed.
    """
    named = [word.rpartition("=")[2] for word in args if is_config(word)]
    found = [path for name in named if (path := places.here(name)) is not None]
    if found or any(needs_shell(name) for name in named):
        return found
    given = {id(one.default) for one in code.options if given_text(args, code, one.name) is not None}
    texts = [
        (module, text)
        for module in code.modules
        for node in module.nodes
        if id(node) not in given
        for text in _config_text(node)
    ]
    texts += [(module, text) for module in code.modules for text in _of_hydra(module)]
    ways = (way for module, text in texts for way in (places.root / text, module.path.parent / text))
    return [way for way in dict.fromkeys(ways) if os.path.isfile(way)][:4]  # noqa: PTH113  it never raises


def _of_hydra(module: PythonModule) -> Iterator[str]:
    """The file of ``@hydra.main(config_path="conf", config_name="train")``."""
    for call in module.calls:
        if module.dotted(call.func) == "hydra.main":
            told = {one.arg: one.value.value for one in call.keywords if isinstance(one.value, ast.Constant)}
            name, folder = told.get("config_name"), told.get("config_path")
            if isinstance(name, str):
                ending = "" if is_config(name) else ".yaml"
                yield f"{folder if isinstance(folder, str) else '.'}/{name}{ending}"


def _config_text(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)) if len(text) < _LONGEST_NAME and is_config(text):
            if not {"\n", "\0"}.intersection(text):
                yield text
        case _:
            pass


def _text(module: PythonModule) -> str:
    return bytes_from(module.path, 0, _MOST_BYTES).decode("utf-8", "replace")


def _imported(files: Sequence[Path]) -> Iterator[str]:
    for file in files:
        with suppress(UnreadableSource):
            yield from read_imports(file)


def _fit(
    names: Sequence[str], marked: tuple[str, str] | None, script: Script, places: NearbyFiles
) -> RecipeFit | None:
    found = recipe_for(names)
    if marked is not None:
        recipe, why = read_recipe(recipe_file(marked[0])), marked[1]
    elif found is not None:
        recipe, why = found[0], f"{script.path} trains with {found[1]}"
    else:
        return None
    code, filler = script.code, RecipeFiller(recipe, script)
    fit = RecipeFit(
        name=recipe.name,
        why=why,
        pointers=tuple(one.name for one in recipe.pointers),
        marked=marked is not None,
    )
    try:
        folders, arguments = filler.checkpoint_dirs(1), filler.resume_args()
        rewrites = [f"{places.shown(Path(one.file))}:{one.key}" for one in filler.rewrites()[0]]
    except ConfigError as error:
        return replace(fit, doubts=(error.because,))
    doubts = [f"the script computes {what}" for what in dict.fromkeys(code.computed)]
    doubts += [
        f"{what} is {', '.join(filter(None, values))} and one that is computed"
        for what, values in code.several.items()
        if "" in values
    ]
    return replace(fit, folders=folders, arguments=arguments, rewrites=tuple(rewrites), doubts=tuple(doubts))
