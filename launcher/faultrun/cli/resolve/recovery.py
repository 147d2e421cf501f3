"""Where to resume and how the script learns of it: the options, and beneath them the recipe.

An option that was set, on the command line, by a variable or in ``--config``, is
taken as it stands, and the recipe is not asked for that part at all.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from faultrun.cli.options.choices import likely
from faultrun.cli.options.settings import Settings
from faultrun.cli.resolve.context import ResolveContext
from faultrun.cli.resolve.program import Program
from faultrun.frameworks.mindio_tft import TFT_VARIABLE, normalised
from faultrun.model.printable import one_line
from faultrun.model.spec.run_spec import Framework, Recovery, Replicas

if TYPE_CHECKING:
    from faultrun.configs.recipes.fill import Script
    from faultrun.model.recipe import Recipe

_NO_FOLDER = "faultrun looks for checkpoints only in the folders that it is told"


def read_chosen_recipe(settings: Settings) -> "Recipe | None":
    """Read ``--recipe``; ConfigError if there is no such recipe, or something in it is wrong."""
    if not settings.recipe:
        return None
    from faultrun.configs.recipes.packaged import recipe_file
    from faultrun.configs.recipes.recipe import read_recipe

    file = recipe_file(settings.recipe)
    near = os.path.relpath(file)
    return read_recipe(Path(near) if len(near) < len(str(file)) else file)


def resolve_recovery(
    ctx: ResolveContext,
    recipe: "Recipe | None",
    program: Program,
    world_size: int,
    places: Sequence[str] = (),
) -> Recovery:
    """Settle the options of "Where to resume"; UsageError (ConfigError) where they lack something.

    ConfigError when the recipe needs what is not given.

    ``places`` are the working directories of the ranks, where they are not ours.
    """
    from faultrun.frameworks.program_files import asks, program_sources

    settings = ctx.settings
    words = (*program.command.prefix, *program.command.script_args)
    sources = program_sources(words, program.source, program.search)
    said = Recovery(
        checkpoint_dirs=settings.checkpoint_dir,
        rewrites=settings.rewrite,
        resume_args=settings.resume_arg,
        resume=settings.resume,
        restore_configs=settings.restore_configs,
        trust=settings.trust,
        script_asks=asks(words, sources),
        pattern=settings.checkpoint_pattern or "",
    )
    _note_missing(ctx, said.checkpoint_dirs)
    if recipe is not None:
        found = _filled(ctx, said, recipe, _script(ctx, program, sources), world_size, places)
        return _as_taken(ctx, found, program, sources)
    if not (
        settings.checkpoint_dir or settings.rewrite or settings.resume_arg or settings.gave(Settings.recipe)
    ):
        _propose_recipe(ctx, sources)
    for option in (Settings.rewrite, Settings.resume_arg):
        if settings.gave(option) and not said.checkpoint_dirs:
            hint = "--checkpoint_dir=DIR, the folder that the training saves into"
            raise settings.refuse(option, _NO_FOLDER, hint)
    return _as_taken(ctx, said, program, sources)


def _as_taken(ctx: ResolveContext, found: Recovery, program: Program, sources: Sequence[Path]) -> Recovery:
    """How the script's own source takes what a restart passes, told where it is another way."""
    if not found.resume_args:
        return found
    from faultrun.configs.hand_over import hand_over

    taken = hand_over(found.resume_args, program.command.script_args, program.source, sources)
    for one in taken.rewrites:
        ctx.note(
            f"the script takes {one.file} and no option beside it: a restart sets {one.key} there instead"
        )
    rewrites = (*found.rewrites, *taken.rewrites)
    return replace(found, resume_args=taken.resume_args, resume_at=taken.at, rewrites=rewrites)


def _propose_recipe(ctx: ResolveContext, sources: Sequence[Path]) -> None:
    """Name the recipe that fits a script which nothing tells where to resume."""
    from faultrun.configs.recipes.packaged import files_that_may_fit, imported_prefixes
    from faultrun.frameworks.detect import UnreadableSource, read_imports
    from faultrun.frameworks.program_files import resumes_by_us

    imported: list[str] = []
    for file in sources:
        if file.suffix == ".py":
            with suppress(UnreadableSource):
                imported += read_imports(file)
    if not any(files_that_may_fit(frozenset(imported_prefixes(imported)))) or resumes_by_us(sources):
        return
    from faultrun.configs.recipes.recipe import recipe_for

    found = recipe_for(imported)
    if found is not None:
        recipe, name = found
        first = next(file.name for file in sources if file.suffix == ".py")
        ctx.note(f"{first} trains with {name}: --recipe={recipe.name} resumes it from its own checkpoints")


def _script(ctx: ResolveContext, program: Program, sources: Sequence[Path]) -> "Script":
    from faultrun.configs.recipes.fill import Script
    from faultrun.configs.recipes.source_value import SourceCode

    if (source := program.source) is not None and ctx.settings.worker_dir:
        source = source.absolute()
    code = SourceCode([file for file in sources if file.suffix == ".py"])
    path = "" if source is None else str(source)
    return Script(path=path, args=program.command.script_args, environ=ctx.environ, code=code)


def resolve_environment(
    ctx: ResolveContext, recipe: "Recipe | None", framework: Framework
) -> tuple[tuple[str, str], ...]:
    """What workers get beside the inherited variables: the recipe's, and MindSpore's switches put right.

    ConfigError for an MS_ENABLE_TFT that MindSpore would misread. Other frameworks do not read it.
    """
    ours: dict[str, str] = {}
    if recipe is not None:
        ours = {name: value for name, value in recipe.environment if name not in ctx.environ}
    given = ours.get(TFT_VARIABLE, ctx.environ.get(TFT_VARIABLE, ""))
    if framework in (Framework.MINDSPORE, Framework.PLAIN) and (spelled := normalised(given)) != given:
        ctx.note(f"{TFT_VARIABLE}={given} is handed on as {spelled}, which all of MindSpore reads alike")
        ours[TFT_VARIABLE] = spelled
    return tuple(ours.items())


def _filled(
    ctx: ResolveContext,
    said: Recovery,
    recipe: "Recipe",
    script: "Script",
    world_size: int,
    places: Sequence[str],
) -> Recovery:
    """What the recipe adds where the option was not set, told for a person to see that it is right."""
    from faultrun.configs.recipes.fill import RecipeFiller

    filler = RecipeFiller(recipe, script)
    found = replace(
        said,
        pointers=recipe.pointers,
        replicas=recipe.replicas,
        formats=recipe.formats,
        resharded=recipe.resharded,
        resume_environment=recipe.resume_environment,
    )
    if not ctx.settings.gave(Settings.checkpoint_dir):
        found = replace(found, checkpoint_dirs=filler.checkpoint_dirs(world_size, places))
        for line in (*_apart(recipe, found, places), *_doubts(script)):
            ctx.note(f"recipe {recipe.name}: {line}")
    if not ctx.settings.gave(Settings.rewrite):
        rewrites, left_out = filler.rewrites()
        found = replace(found, rewrites=rewrites)
        for line in left_out:
            ctx.note(f"recipe {recipe.name}: {line}")
    if not ctx.settings.gave(Settings.resume_arg):
        found = replace(found, resume_args=filler.resume_args())
        _note_untold(ctx, recipe, found)
    dirs = found.checkpoint_dirs
    parts = [f"checkpoints in {' '.join(dirs) if len(dirs) <= 2 else f'{dirs[0]} ... {dirs[-1]}'}"]
    for file in dict.fromkeys(one.file for one in found.rewrites):
        keys = ", ".join(one.key for one in found.rewrites if one.file == file)
        parts.append(f"sets {keys} in {file}")
    if found.pointers:
        parts.append(f"corrects {' '.join(one.name for one in found.pointers)}")
    if found.resume_args:
        parts.append(f"passes {' '.join(found.resume_args)}")
    if found.resume_environment:
        parts.append(f"sets {', '.join(name for name, _ in found.resume_environment)} on a restart")
    if recipe.resharded:
        parts.append("for any number of workers")
    if recipe.replicas is Replicas.GROUP_INFO:
        parts.append("replicas as group_info.pb says")
    ctx.note(f"recipe {recipe.name}: {'; '.join(parts)}")
    return found


def _apart(recipe: "Recipe", found: Recovery, places: Sequence[str]) -> Iterator[str]:
    """Where ranks that write one checkpoint together would each write it elsewhere."""
    own = any(folder.startswith(tuple(places)) for folder in found.checkpoint_dirs)
    if own and len(set(places)) > 1 and "folder" in recipe.formats:
        yield (
            "--worker_dir leaves each rank's part of a checkpoint in its own folder, where only a save of "
            "the SDK is whole: give the script an absolute path to save in"
        )


def _doubts(script: "Script") -> Iterator[str]:
    """Where a script saves that its source does not tell, or tells in several ways."""
    for what in dict.fromkeys(script.code.computed):
        yield f"the script computes {_argument_of(what)}; name where it saves: --checkpoint_dir=DIR"
    for what, values in script.code.several.items():
        known = ", ".join(filter(None, values))
        if "" in values:
            text = f"{known}, and one that it computes; name where it saves: --checkpoint_dir=DIR"
        else:
            text = f"{known}; all are looked through, --checkpoint_dir=DIR names one"
        yield f"the script gives {_argument_of(what)} more than once: {text}"


def _argument_of(what: str) -> str:
    call, _, argument = what.rpartition(".")
    return f"argument {argument} of {call}" if argument.isdecimal() else what


def _note_untold(ctx: ResolveContext, recipe: "Recipe", found: Recovery) -> None:
    """A script that has none of the recipe's options is told nothing, and begins anew after a fault."""
    from faultrun.configs.recipes.reference import options

    missing = ", ".join(option for phrase in recipe.resume_args for option in options(phrase.text))
    if missing and not found.handed_over:
        ctx.note(
            f"recipe {recipe.name}: the script has no option {missing}, so nothing tells it where to resume: "
            "--resume_arg, or FAULTRUN_RESUME_FROM in its source"
        )


def _note_missing(ctx: ResolveContext, dirs: Iterable[str]) -> None:
    """A training may make the folder; only the training can tell that from a typing error."""
    for folder in dirs:
        path = Path(folder)
        if path.exists():
            continue
        beside = [one.name for one in path.parent.glob("[!.]*")] if path.parent.is_dir() else []
        near = likely(path.name, beside)
        meant = f"; is {path.with_name(near)} meant?" if near else ""
        ctx.note(one_line(f"--checkpoint_dir {folder}: no such folder yet, as before a first save{meant}"))
