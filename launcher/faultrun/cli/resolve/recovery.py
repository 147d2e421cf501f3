"""Where to resume and how the script learns of it: the options, and beneath them the recipe.

An option that somebody set, on the command line, by a variable or in ``--config``, is
taken as it stands, and the recipe is not asked for that part at all.
"""

import os
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from faultrun.cli.options.settings import Settings
from faultrun.cli.options.values import rewrite, template
from faultrun.cli.resolve.process_context import Notes, Surroundings
from faultrun.cli.resolve.program import Program
from faultrun.frameworks import tft
from faultrun.model.printable import one_line
from faultrun.model.recipe import Recipe
from faultrun.model.spec import Framework, Recovery, Replicas, Resume, Rewrite

_NONE = ("", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The recipe that was asked for, and what its references may refer to."""

    recipe: Recipe
    program: Program
    around: Surroundings


def chosen_recipe(settings: Settings, program: Program, around: Surroundings) -> Chosen | None:
    """Read ``--recipe``; ConfigError if there is no such recipe, or something in it is wrong."""
    name = settings.read("recipe", str)
    if name is None or name in _NONE:
        return None
    from faultrun.configs.recipe import read_recipe
    from faultrun.configs.recipe_files import recipe_file

    file = recipe_file(name)
    near = os.path.relpath(file)
    recipe = read_recipe(Path(near) if len(near) < len(str(file)) else file)
    return Chosen(recipe=recipe, program=program, around=around)


def _note_missing(dirs: tuple[str, ...], notes: Notes) -> None:
    """A training may make the folder; nobody else can tell that from a typing error."""
    for folder in dirs:
        path = Path(folder)
        if path.exists():
            continue
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        near = [str(path.with_name(name)) for name in get_close_matches(path.name, beside, n=1)]
        meant = f"; {near[0]} is" if near else ""
        notes.add(one_line(f"--checkpoint_dir {folder} is not there yet{meant}"))


def recovery(
    settings: Settings, notes: Notes, chosen: Chosen | None, *, world_size: int, resume: Resume
) -> Recovery:
    """Settle the three options; ConfigError when the recipe needs something that is not given."""
    dirs = settings.read_all("checkpoint_dir", _folder)
    rewrites = settings.read_all("rewrite", rewrite)
    resume_args = settings.read_all("resume_arg", template)
    _note_missing(dirs, notes)
    if chosen is None:
        return Recovery(checkpoint_dirs=dirs, rewrites=rewrites, resume_args=resume_args, resume=resume)
    from faultrun.configs import recipe_fill

    recipe, script = chosen.recipe, _script(chosen)
    if "checkpoint_dir" not in settings.given:
        dirs = recipe_fill.checkpoint_dirs(recipe, script, world_size)
    if "rewrite" not in settings.given:
        filled = recipe_fill.rewrites(recipe, script)
        rewrites = filled.rewrites
        for line in filled.left_out:
            notes.add(f"recipe {recipe.name}: {line}")
    if "resume_arg" not in settings.given:
        resume_args = recipe_fill.resume_args(recipe, script)
    notes.add(_summary(recipe, dirs, rewrites, resume_args))
    return Recovery(
        checkpoint_dirs=dirs,
        rewrites=rewrites,
        resume_args=resume_args,
        resume=resume,
        replicas=recipe.replicas,
    )


def environment(
    chosen: Chosen | None, around: Surroundings, framework: Framework, notes: Notes
) -> tuple[tuple[str, str], ...]:
    """What workers get beside the inherited variables: the recipe's, and MindSpore's switches put right.

    ConfigError for an MS_ENABLE_TFT that MindSpore would misread. Other frameworks do not read it.
    """
    ours: dict[str, str] = {}
    if chosen is not None:
        from faultrun.configs import recipe_fill

        ours = recipe_fill.environment(chosen.recipe, around.environ)
    given = ours.get(tft.VARIABLE, around.environ.get(tft.VARIABLE, ""))
    if framework in (Framework.MINDSPORE, Framework.PLAIN):
        spelled = tft.normalised(given)
        if spelled != given:
            notes.add(f"{tft.VARIABLE}={given} is handed on as {spelled}, which all of MindSpore reads alike")
            ours[tft.VARIABLE] = spelled
    return tuple(ours.items())


def _script(chosen: Chosen) -> "Script":  # type: ignore[name-defined]  # noqa: F821  imported where it is needed
    from faultrun.configs.recipe_fill import Script

    source = chosen.program.source
    return Script(
        path=str(source) if source is not None else "",
        args=chosen.program.command.script_args,
        environ=chosen.around.environ,
    )


def _summary(
    recipe: Recipe, dirs: tuple[str, ...], rewrites: tuple[Rewrite, ...], resume_args: tuple[str, ...]
) -> str:
    """What the recipe came to, for a person to see that it is right."""
    shown = " ".join(dirs) if len(dirs) <= 2 else f"{dirs[0]} ... {dirs[-1]}"
    parts = [f"checkpoints in {shown}"]
    for file in dict.fromkeys(one.file for one in rewrites):
        keys = ", ".join(one.key for one in rewrites if one.file == file)
        parts.append(f"sets {keys} in {file}")
    if resume_args:
        parts.append(f"passes {' '.join(resume_args)}")
    if recipe.replicas is Replicas.GROUP_INFO:
        parts.append("replicas as group_info.pb says")
    return f"recipe {recipe.name}: {'; '.join(parts)}"


def _folder(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    if Path(text).is_file():
        raise ValueError(f"{text} is a file, not a folder of checkpoints")
    return text
