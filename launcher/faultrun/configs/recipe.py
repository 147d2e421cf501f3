"""Reading a recipe: YAML to ``model.recipe``, every mistake named by file and line.

The keys are described for their writers in ``templates/recipes/README.md``.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from faultrun.configs import recipe_reference
from faultrun.configs.registry import FORMATS
from faultrun.configs.target import parse_key
from faultrun.core import template
from faultrun.errors import ConfigError
from faultrun.model.recipe import Phrase, Recipe, RecipeRewrite
from faultrun.model.spec import Framework, Replicas

if TYPE_CHECKING:
    import yaml

_KEYS = (
    "summary",
    "framework",
    "config",
    "checkpoint_dir",
    "rewrite",
    "resume_arg",
    "resume_arg_if_given",
    "replica_groups",
    "environment",
)
_REWRITE_KEYS = ("file", "key", "value", "format", "optional")
_MAX_BYTES = 1 << 20
_NULL = "tag:yaml.org,2002:null"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RANK = frozenset({"rank"})
_SEE = "faultrun recipes show mindspore-resnet is one that works"


def read_recipe(file: Path) -> Recipe:
    """Read and check a recipe. ConfigError, naming the line, for anything it should not hold."""
    import yaml  # noqa: PLC0415  most runs have no recipe

    page = _Page(source=str(file))
    try:
        root = yaml.compose(_text(file), Loader=yaml.SafeLoader)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot read the recipe {file}", because=reason, hint="faultrun recipes") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise page.error(line, "is not YAML", " ".join(str(error.problem or error).split())) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not YAML", because=" ".join(str(error).split()), hint=_SEE) from None
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(
            f"{file} is no recipe", because=f"it holds {_shape(root)}, not a mapping", hint=_SEE
        )
    return _recipe(page, file.stem, root)


def _text(file: Path) -> str:
    with file.open("rb") as opened:
        content = opened.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError("it is larger than 1 MiB")
    return content.decode("utf-8-sig")


def _recipe(page: "_Page", name: str, root: "yaml.MappingNode") -> Recipe:
    given = page.entries(root, _KEYS, "the keys of a recipe")
    for needed in ("summary", "checkpoint_dir"):
        if needed not in given:
            raise page.error(1, f"has no {needed}", "every recipe needs one")
    summary = page.phrase(given["summary"])
    if not summary.text.strip() or "\n" in summary.text.strip():
        raise page.error(summary.line, "summary cannot be used", "it must be one line")
    framework = page.word(given, "framework", [kind.value for kind in Framework])
    return Recipe(
        name=name,
        source=page.source,
        summary=summary.text.strip(),
        framework=Framework(framework) if framework else None,
        config=page.path(given["config"], frozenset()) if "config" in given else None,
        checkpoint_dirs=tuple(_directories(page, given["checkpoint_dir"])),
        rewrites=tuple(_rewrites(page, given)),
        resume_args=tuple(_arguments(page, given, "resume_arg")),
        resume_args_if_given=tuple(_arguments(page, given, "resume_arg_if_given")),
        replicas=Replicas(page.word(given, "replica_groups", [kind.value for kind in Replicas]) or "auto"),
        environment=tuple(_environment(page, given)),
    )


def _directories(page: "_Page", node: "yaml.Node") -> Iterator[tuple[Phrase, ...]]:
    found = page.several(node)
    for entry in found:
        yield tuple(page.path(part, _RANK) for part in page.several(entry))
    if not found:
        raise page.error(node.start_mark.line + 1, "checkpoint_dir cannot be used", "the list is empty")


def _rewrites(page: "_Page", given: Mapping[str, "yaml.Node"]) -> Iterator[RecipeRewrite]:
    for entry in page.several(given["rewrite"]) if "rewrite" in given else ():
        line = entry.start_mark.line + 1
        parts = page.entries(entry, _REWRITE_KEYS, "the keys of a rewrite")
        for needed in ("file", "key"):
            if needed not in parts:
                raise page.error(line, "rewrite cannot be used", f"it has no {needed}")
        value = page.template(parts["value"]) if "value" in parts else Phrase(text="{checkpoint}", line=line)
        if "rank" in template.parse(recipe_reference.as_sample(value.text)).fields:
            because = "{rank} differs from worker to worker, and they all read the one file"
            raise page.error(value.line, "rewrite cannot be used", because)
        yield RecipeRewrite(
            file=page.path(parts["file"], frozenset()),
            key=page.key(parts["key"]),
            value=value,
            format=page.word(parts, "format", list(FORMATS)),
            optional=page.word(parts, "optional", ["true", "false"]) == "true",
        )


def _arguments(page: "_Page", given: Mapping[str, "yaml.Node"], key: str) -> Iterator[Phrase]:
    for entry in page.several(given[key]) if key in given else ():
        yield page.argument(entry, key)


def _environment(page: "_Page", given: Mapping[str, "yaml.Node"]) -> Iterator[tuple[str, str]]:
    if "environment" not in given:
        return
    for name, node in page.entries(given["environment"], None, "").items():
        if not _VARIABLE.fullmatch(name):
            line = node.start_mark.line + 1
            raise page.error(line, "environment cannot be used", f"{name!r} is no name of a variable")
        yield name, page.phrase(node).text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """Takes a recipe's nodes apart; ``source`` is named in every error."""

    source: str

    def error(self, line: int, what: str, because: str, hint: str = _SEE) -> ConfigError:
        """The error that names the line; the caller raises it."""
        return ConfigError(f"{self.source}:{line} {what}", because=because, hint=hint)

    def entries(self, node: "yaml.Node", known: tuple[str, ...] | None, of: str) -> dict[str, "yaml.Node"]:
        """A mapping by its keys, each of them ``known`` (any, if None) and there once."""
        line = node.start_mark.line + 1
        if _shape(node) != "a mapping":
            raise self.error(line, "cannot be used", f"it holds {_shape(node)}, not a mapping")
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if known is not None and name not in known:
                close = get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]}?" if close else "take it out"
                raise self.error(line, f"{name} cannot be used", f"{of} are {', '.join(known)}", hint)
            if name in found:
                first = found[name].start_mark.line + 1
                raise self.error(line, f"{name} is given twice", f"it was already given in line {first}")
            found[name] = value
        return found

    def several(self, node: "yaml.Node") -> list["yaml.Node"]:
        """The items of a list; anything else is a list of one."""
        return list(node.value) if _shape(node) == "a list" else [node]

    def phrase(self, node: "yaml.Node") -> Phrase:
        """A text, as it is written."""
        line = node.start_mark.line + 1
        if _shape(node) != "text" or node.tag == _NULL:
            shape = "nothing" if node.tag == _NULL else _shape(node)
            hint = "put quotes around what begins with a brace" if shape == "a mapping" else _SEE
            raise self.error(line, "cannot be used", f"text is needed here, not {shape}", hint)
        return Phrase(text=str(node.value), line=line)

    def path(self, node: "yaml.Node", allowed: frozenset[str]) -> Phrase:
        """A text with references, and no fields but the ``allowed`` ones."""
        phrase = self.phrase(node)
        for name in recipe_reference.fields(phrase.text):
            if name not in allowed:
                because = f"{{{name}}} is nothing that is known before training"
                hint = "{arg:NAME}, {config:KEY}, {env:NAME}, {script}, {script_dir} or {...|=TEXT}"
                raise self.error(phrase.line, f"{phrase.text!r} cannot be used", because, hint)
        return phrase

    def template(self, node: "yaml.Node") -> Phrase:
        """A TEMPLATE, whose fields are known."""
        phrase = self.phrase(node)
        try:
            template.parse(recipe_reference.as_sample(phrase.text))
        except ConfigError as error:
            raise self.error(
                phrase.line, f"{phrase.text!r} cannot be used", error.because, error.hint
            ) from None
        return phrase

    def argument(self, node: "yaml.Node", key: str) -> Phrase:
        """A TEMPLATE that becomes an argument of the script."""
        phrase = self.template(node)
        if not re.match(r"-{1,2}[^\s=-]|[+A-Za-z_~][^=\s]*=", phrase.text):
            because = "an argument begins with a dash or with NAME="
            raise self.error(phrase.line, f"{key} {phrase.text!r} cannot be used", because)
        return phrase

    def key(self, node: "yaml.Node") -> Phrase:
        """A KEY, as in ``--rewrite FILE:KEY``."""
        phrase = self.phrase(node)
        try:
            parse_key(phrase.text)
        except ConfigError as error:
            raise self.error(
                phrase.line, f"{phrase.text!r} cannot be used", error.because, error.hint
            ) from None
        return phrase

    def word(self, given: Mapping[str, "yaml.Node"], key: str, known: list[str]) -> str:
        """One of the ``known`` words, empty if the key is not there."""
        if key not in given:
            return ""
        phrase = self.phrase(given[key])
        if phrase.text not in known:
            because = f"it is none of {', '.join(known)}"
            raise self.error(phrase.line, f"{key} {phrase.text!r} cannot be used", because)
        return phrase.text


def _shape(node: object) -> str:
    """What a YAML node is, in words."""
    words = {"scalar": "text", "sequence": "a list", "mapping": "a mapping"}
    return words.get(str(getattr(node, "id", "")), "nothing")
