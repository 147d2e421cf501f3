"""A recipe meets a script: references become what the user gave, and the bundle becomes plain options.

Reads the training configuration that the recipe names, and changes nothing. Each part is
filled on its own: what the user gave on the command line is never asked of the recipe.
"""

import ast
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from faultrun.configs.editors.edited import NoParent
from faultrun.configs.editors.registry import edit, format_of
from faultrun.configs.files import snapshot
from faultrun.configs.recipes.reference import Reference, Unknown, every_filled, filled, filled_template
from faultrun.configs.recipes.source_value import SourceCode
from faultrun.core import template
from faultrun.errors import ConfigError
from faultrun.model.edit import Change
from faultrun.model.recipe import Phrase, Recipe
from faultrun.model.spec.run_spec import Rewrite

_SAMPLE = "x"
_NO_PLAIN_VALUE = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What references may refer to. ``path`` is empty where no file of the script is known.

    ``code`` is its source with that of its local modules.
    """

    path: str
    args: tuple[str, ...]
    environ: Mapping[str, str]
    code: SourceCode = field(default_factory=SourceCode)


@dataclass(frozen=True, slots=True)
class RecipeFiller:
    """One recipe for one script. ConfigError where a reference is unknown, and nothing else will do."""

    recipe: Recipe
    script: Script

    def checkpoint_dirs(self, world_size: int, places: Sequence[str] = ()) -> tuple[str, ...]:
        """Every folder that the recipe can name here, ``{rank}`` once for each rank.

        ``places`` are the working directories of the ranks, where they are not ours: a relative folder lies
        in each of them. A folder whose references are unknown is left out as long as another one
        is known: layouts of several releases stand side by side. ConfigError if none is.
        """
        found: list[str] = []
        missing: list[tuple[Phrase, Unknown]] = []
        for parts in self.recipe.checkpoint_dirs:
            try:
                every = self._joined(parts)
            except Unknown as unknown:
                missing.append((parts[0], unknown))
                continue
            for joined in every:
                for rank in range(world_size if places or "{rank}" in joined else 1):
                    folder = joined.replace("{rank}", str(rank))
                    place = places[rank] if places else ""
                    found.append(os.path.normpath(os.path.join(place, folder)))  # noqa: PTH118  "" is no place
        if not found:
            raise self._cannot(*missing[0])
        return tuple(dict.fromkeys(found))

    def _joined(self, parts: Sequence[Phrase]) -> list[str]:
        """Each folder that it may be; what the script computes does not matter where other words tell it.

        Raises Unknown.
        """
        computed = self.script.code.computed
        asked_before = len(computed)
        answers: list[str] = []

        def look_up(alternatives: Sequence[Reference]) -> Sequence[str]:
            if values := self._every_value(alternatives):
                answers.extend(values)
                return values
            return [one.name for one in alternatives if one.kind == "text"][:1]

        every = [every_filled(part.text, look_up) for part in parts]
        if answers:
            del computed[asked_before:]
        return [os.path.join(*words) for words in itertools.product(*every)]  # noqa: PTH118  texts with {rank}

    def _every_value(self, alternatives: Sequence[Reference]) -> Sequence[str]:
        """What the first known alternative may be: of calls in the source, each value that they give."""
        computed = self.script.code.computed
        asked_before = len(computed)
        for at, one in enumerate(alternatives):
            if one.kind == "text":
                return ()
            if one.kind == "code" and len(computed) > asked_before:
                continue  # the script says it elsewhere, in a way that is not known: no other call will do
            if one.kind == "code":
                call = one.name.rpartition(".")[0]
                same = (other for other in alternatives[at:] if other.kind == "code")
                names = [other.name for other in same if other.name.rpartition(".")[0] == call]
                values: Sequence[str] = self.script.code.values(names, self._given)
            else:
                value = self._look_up(one)
                values = [] if value is None else [value]
            if values:
                return values
        return ()

    def rewrites(self) -> tuple[tuple[Rewrite, ...], tuple[str, ...]]:
        """The values to set, and why optional ones that are there are left alone."""
        kept: list[Rewrite] = []
        left_out: list[str] = []
        for wanted in self.recipe.rewrites:
            try:
                file = os.path.normpath(filled(wanted.file.text, self._look_up))
            except Unknown as unknown:
                if not wanted.optional:
                    raise self._cannot(wanted.file, unknown) from None
                continue
            value = self._template(wanted.value)
            rewrite = Rewrite(file=file, key=wanted.key.text, template=value, format=wanted.format)
            why = _unsettable(rewrite) if wanted.optional else ""
            if why:
                left_out.append(f"{rewrite.file}:{rewrite.key} is left alone: {why}")
            elif why is not None:
                kept.append(rewrite)
        return tuple(kept), tuple(left_out)

    def resume_args(self) -> tuple[str, ...]:
        """The arguments to set, as TEMPLATEs."""
        if_given = self.recipe.resume_args_if_given
        wanted = [phrase for phrase in if_given if _is_given(self.script.args, phrase.text)]
        found = (self._argument_of(phrase) for phrase in (*self.recipe.resume_args, *wanted))
        return tuple(text for text in found if text is not None)

    def _argument_of(self, phrase: Phrase) -> str | None:
        """None where the script's source has none of the options that the recipe knows."""
        try:
            return template.parse(filled_template(phrase.text, self._look_up)).text
        except Unknown as unknown:
            if all(one.kind == "option" for one in unknown.missing):
                return None
            raise self._cannot(phrase, unknown) from None

    def _template(self, phrase: Phrase) -> str:
        try:
            return template.parse(filled_template(phrase.text, self._look_up)).text
        except Unknown as unknown:
            raise self._cannot(phrase, unknown) from None

    def _look_up(self, reference: Reference) -> str | None:
        match reference.kind:
            case "arg":
                return self._given(reference.name)
            case "default":
                return self.script.code.default(reference.name)
            case "config":
                return self._configured(reference.name)
            case "env":
                return self.script.environ.get(reference.name) or None
            case "code":
                return self.script.code.value(reference.name, self._given)
            case "option":
                return self.script.code.option(reference.name)
            case "script":
                return self.script.path or None
            case _:
                return os.path.dirname(self.script.path) or "." if self.script.path else None  # noqa: PTH120

    def _given(self, name: str) -> str | None:
        """A field of the script's parsed arguments."""
        found = (argument_value(self.script.args, word) for word in (name, name.replace("_", "-")))
        return next((one for one in found if one is not None), None)

    def _configured(self, key: str) -> str | None:
        """A value of the training configuration: missing when it is null, refused when it is a list."""
        if self.recipe.config is None:
            return None
        file = os.path.normpath(filled(self.recipe.config.text, self._look_up))
        change = _tried(file, key, "")
        return None if change is None else _value_of(file, key, change.before or "")

    def _cannot(self, phrase: Phrase, unknown: Unknown) -> ConfigError:
        recipe, first = self.recipe, unknown.missing[0]
        argument = next((one for one in unknown.missing if one.kind == "arg"), None)
        if argument is not None:
            hint = f"faultrun --recipe={recipe.name} SCRIPT --{argument.name}=..."
        elif first.kind == "config":
            hint = f"put {first.name} into it, or say --checkpoint_dir=DIR"
        else:
            hint = f"faultrun recipes show {recipe.name} says what it needs"
        what = f"{recipe.source}:{phrase.line} cannot be filled in: {phrase.text}"
        return ConfigError(what, because=str(unknown), hint=hint)


def _unsettable(rewrite: Rewrite) -> str | None:
    """Why an optional value cannot be set; empty if it can, None where it is not there at all."""
    if not Path(rewrite.file).is_file():
        return None
    try:
        change = _tried(rewrite.file, rewrite.key, rewrite.format)
    except ConfigError as error:
        return error.because
    if change is None:
        return None
    in_python = format_of(rewrite.file, rewrite.format) == "python"
    if in_python and _plain_python(change.before or "") == _NO_PLAIN_VALUE:
        return f"line {change.line} computes it"
    return ""


def _tried(file: str, key: str, format_name: str) -> Change | None:
    """What setting the value would change; None where it is not there."""
    try:
        change = edit(file, snapshot(Path(file)).data, key, _SAMPLE, format=format_name).change
    except ConfigError as error:
        if isinstance(error.__cause__, NoParent):
            return None
        raise
    return None if change.before is None else change


def _value_of(file: str, key: str, spelled: str) -> str | None:
    match format_of(file):
        case "python":
            value: object = _plain_python(spelled)
        case "yaml" | "json":
            value = _plain_yaml(spelled)
        case _:
            value = spelled[1:-1] if spelled[:1] in {'"', "'"} else spelled
    if value is None or isinstance(value, str | int | float):
        return None if value is None else str(value)
    because = "it holds no plain value"
    raise ConfigError(f"{key} of {file} cannot be used", because=because, hint="--checkpoint_dir=DIR")


def _plain_python(spelled: str) -> object:
    with suppress(ValueError, SyntaxError):
        value: object = ast.literal_eval(spelled)
        return value
    return _NO_PLAIN_VALUE


def _plain_yaml(spelled: str) -> object:
    import yaml  # noqa: PLC0415  most runs have no recipe

    with suppress(yaml.YAMLError):
        value: object = yaml.safe_load(spelled)
        return value
    return _NO_PLAIN_VALUE


def argument_value(args: Sequence[str], name: str) -> str | None:
    """The value of ``--name=v``, ``--name v`` or ``-name v``; the last one counts, as in argparse."""
    for at in reversed(range(len(args))):
        word, equals, value = args[at].partition("=")
        if word in (f"--{name}", f"-{name}"):
            if equals:
                return value
            if at + 1 < len(args) and not args[at + 1].startswith("--"):
                return args[at + 1]
    return None


def _is_given(args: Sequence[str], option: str) -> bool:
    """Whether the arguments already hold the option of a TEMPLATE such as ``--pre_trained={checkpoint}``."""
    name = re.split(r"[=\s]", option, maxsplit=1)[0]
    return any(word == name or word.startswith(f"{name}=") for word in args)
