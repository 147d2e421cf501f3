"""Recipes: which there are, which fits a script, and reading one into ``model.recipe``.

Every mistake is named by file and line. The keys are described for their writers in
``templates/recipes/README.md``.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from faultrun.configs.editors.registry import FORMATS
from faultrun.configs.recipes import reference
from faultrun.configs.recipes.packaged import files_that_may_fit, imported_prefixes
from faultrun.configs.target import parse_key
from faultrun.core import template
from faultrun.errors import ConfigError
from faultrun.model.edit import ScalarKind
from faultrun.model.recipe import Phrase, Recipe, RecipeRewrite
from faultrun.model.spec.run_spec import Framework, Pointer, Replicas
from faultrun.text.patch import MalformedText
from faultrun.text.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode

_KEYS = (
    "summary",
    "example",
    "detect",
    "framework",
    "config",
    "checkpoint_dir",
    "rewrite",
    "pointer",
    "resume_arg",
    "resume_arg_if_given",
    "replica_groups",
    "formats",
    "world_size",
    "environment",
)
_POINTER_KEYS = ("file", "value")
_REWRITE_KEYS = ("file", "key", "value", "format", "optional")
_MAX_BYTES = 1 << 20
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_FORMAT = re.compile(r"[a-z][a-z0-9_-]*")
_ARGUMENT = re.compile(r"-{1,2}[^\s=-]|[+A-Za-z_~][^=\s]*=|\{option:")
_RESUME_FIELD = re.compile(r"\{(" + "|".join(template.FIELDS) + r")\}")
_SEE = "faultrun recipes show mindspore-resnet is one that works"
_BENEATH = "torch."
"""What the others are built on: a script that has both is one of the others."""


def recipe_for(imported: Iterable[str]) -> tuple[Recipe, str] | None:
    """The recipe that knows most of the dotted names ``imported``, and the first of them that it knows.

    A name counts if it is imported, or something below it is.
    """
    used = frozenset(imported_prefixes(imported))
    recipes = map(read_recipe, files_that_may_fit(used))
    known = ((recipe, [name for name in recipe.detect if name in used]) for recipe in recipes)
    fitting = [(recipe, names) for recipe, names in known if names]
    if not fitting:
        return None
    recipe, names = min(fitting, key=lambda one: (one[1][0].startswith(_BENEATH), -len(one[1])))
    return recipe, names[0]


def read_recipe(file: Path) -> Recipe:
    """Read and check a recipe. ConfigError, naming the line, for anything it should not hold."""
    from faultrun.text.yaml_reader import read  # noqa: PLC0415  most runs have no recipe

    page = _Page(source=str(file))
    try:
        roots = read(_text(file)).roots
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot read the recipe {file}", because=reason, hint="faultrun recipes") from None
    except MalformedText as error:
        raise page.error(error.line, "is not YAML", error.because) from None
    except ValueError as error:
        raise ConfigError(f"{file} is not YAML", because=" ".join(str(error).split()), hint=_SEE) from None
    root = roots[0] if len(roots) == 1 else None
    if not isinstance(root, MappingNode):
        because = f"it holds {'several documents' if roots[1:] else _shape(root)}, not a mapping"
        raise ConfigError(f"{file} is no recipe", because=because, hint=_SEE)
    return _recipe(page, file.stem, page.entries(root, _KEYS, "the keys of a recipe"))


def _text(file: Path) -> str:
    with file.open("rb") as opened:
        content = opened.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError("it is larger than 1 MiB")
    return content.decode("utf-8-sig")


def _recipe(page: "_Page", name: str, given: Mapping[str, Node]) -> Recipe:
    for needed in ("summary", "checkpoint_dir"):
        if needed not in given:
            raise page.error(1, f"has no {needed}", "every recipe needs one")
    if not (folders := page.several(given, "checkpoint_dir")):
        raise page.error(given["checkpoint_dir"].line, "checkpoint_dir cannot be used", "the list is empty")
    framework = page.word(given, "framework", [kind.value for kind in Framework])
    variables = page.environment(given["environment"]) if "environment" in given else ()
    told = frozenset(variable for variable, text in variables if _RESUME_FIELD.search(text))
    return Recipe(
        name=name,
        source=page.source,
        summary=page.sentence(given, "summary"),
        example=page.sentence(given, "example"),
        detect=page.names(given, "detect", _DOTTED, "a name of Python, such as transformers.Trainer"),
        framework=Framework(framework) if framework else None,
        config=page.path(given["config"]) if "config" in given else None,
        checkpoint_dirs=tuple(tuple(page.path(part, "rank") for part in _items(one)) for one in folders),
        rewrites=tuple(page.rewrite(entry) for entry in page.several(given, "rewrite")),
        pointers=tuple(page.pointer(entry) for entry in page.several(given, "pointer")),
        resume_args=page.arguments(given, "resume_arg"),
        resume_args_if_given=page.arguments(given, "resume_arg_if_given"),
        replicas=Replicas(page.word(given, "replica_groups", [kind.value for kind in Replicas]) or "auto"),
        formats=page.names(given, "formats", _FORMAT, "a format's name, as `faultrun ckpt list` shows it"),
        resharded={"any": True, "same": False}.get(page.word(given, "world_size", ("same", "any"))),
        environment=tuple(one for one in variables if one[0] not in told),
        resume_environment=tuple(one for one in variables if one[0] in told),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """Takes a recipe's nodes apart; ``source`` is named in every error."""

    source: str

    def error(self, line: int, what: str, because: str, hint: str = _SEE) -> ConfigError:
        """The error that names the line; the caller raises it."""
        return ConfigError(f"{self.source}:{line} {what}", because=because, hint=hint)

    def entries(self, node: Node, known: Iterable[str] = (), of: str = "") -> dict[str, Node]:
        """A mapping by its keys, each of them ``known`` (any, if none is) and there once."""
        if not isinstance(node, MappingNode):
            raise self.error(node.line, "cannot be used", f"it holds {_shape(node)}, not a mapping")
        for first, again in node.doubles:
            because = f"it was already given in line {first.line}"
            raise self.error(again.line, f"{again.value} is given twice", because)
        for key, _ in node.entries:
            if known and key.value not in known:
                close = get_close_matches(key.value, known, n=1)
                hint = f"did you mean {close[0]}?" if close else "take it out"
                because = f"{of} are {', '.join(known)}"
                raise self.error(key.line, f"{key.value} cannot be used", because, hint)
        return {key.value: value for key, value in node.entries}

    def several(self, given: Mapping[str, Node], key: str) -> tuple[Node, ...]:
        """The items of a list; anything else is a list of one."""
        return _items(given[key]) if key in given else ()

    def phrase(self, node: Node) -> Phrase:
        """A text, as it is written."""
        shape = _shape(node)
        if not isinstance(node, ScalarNode) or shape == "nothing":
            hint = "put quotes around what begins with a brace" if shape == "a mapping" else _SEE
            raise self.error(node.line, "cannot be used", f"text is needed here, not {shape}", hint)
        return Phrase(text=node.value, line=node.line)

    def sentence(self, given: Mapping[str, Node], key: str) -> str:
        """A text of one line; empty if the key is not there."""
        if key not in given:
            return ""
        phrase = self.phrase(given[key])
        if not phrase.text.strip() or "\n" in phrase.text.strip():
            raise self.error(phrase.line, f"{key} cannot be used", "it must be one line")
        return phrase.text.strip()

    def names(
        self, given: Mapping[str, Node], key: str, kind: "re.Pattern[str]", what: str
    ) -> tuple[str, ...]:
        """Names of one ``kind``, which is ``what`` in words."""
        phrases = tuple(self.phrase(node) for node in self.several(given, key))
        for phrase in phrases:
            if not kind.fullmatch(phrase.text):
                raise self.error(phrase.line, f"{key} {phrase.text!r} cannot be used", f"it is not {what}")
        return tuple(phrase.text for phrase in phrases)

    def path(self, node: Node, *allowed: str) -> Phrase:
        """A text with references, and no fields but the ``allowed`` ones."""
        phrase = self.phrase(node)
        for name in reference.fields(phrase.text):
            if name not in allowed:
                because = f"{{{name}}} is nothing that is known before training"
                hint = "{arg:NAME}, {config:KEY}, {env:NAME}, {code:CALL.NAME}, {script_dir} or {...|=TEXT}"
                raise self.error(phrase.line, f"{phrase.text!r} cannot be used", because, hint)
        return phrase

    def checked(self, phrase: Phrase) -> frozenset[str]:
        """The fields of a TEMPLATE, all of them known."""
        try:
            return template.parse(reference.as_sample(phrase.text)).fields
        except ConfigError as error:
            what = f"{phrase.text!r} cannot be used"
            raise self.error(phrase.line, what, error.because, error.hint) from None

    def arguments(self, given: Mapping[str, Node], key: str) -> tuple[Phrase, ...]:
        """TEMPLATEs that become arguments of the script."""
        phrases = tuple(self.phrase(node) for node in self.several(given, key))
        for phrase in phrases:
            self.checked(phrase)
            if not _ARGUMENT.match(phrase.text):
                because = "an argument begins with a dash or with NAME="
                raise self.error(phrase.line, f"{key} {phrase.text!r} cannot be used", because)
        return phrases

    def rewrite(self, node: Node) -> RecipeRewrite:
        """A value to set in a configuration."""
        parts = self.entries(node, _REWRITE_KEYS, "the keys of a rewrite")
        self._needs(parts, ("file", "key"), node, "rewrite")
        default = Phrase(text="{checkpoint}", line=node.line)
        value = self._for_all(parts["value"], "rewrite") if "value" in parts else default
        key = self.phrase(parts["key"])
        try:
            parse_key(key.text)
        except ConfigError as error:
            raise self.error(key.line, f"{key.text!r} cannot be used", error.because, error.hint) from None
        return RecipeRewrite(
            file=self.path(parts["file"]),
            key=key,
            value=value,
            format=self.word(parts, "format", FORMATS),
            optional=self.word(parts, "optional", ("true", "false")) == "true",
        )

    def pointer(self, node: Node) -> Pointer:
        """A file of the training code's own that names a checkpoint."""
        parts = self.entries(node, _POINTER_KEYS, "the keys of a pointer")
        self._needs(parts, _POINTER_KEYS, node, "pointer")
        name, value = self.phrase(parts["file"]), self._for_all(parts["value"], "pointer")
        if not name.text or "/" in name.text or "{" in name.text:
            because = "a pointer lies beside the checkpoint that it names: its file is a name alone"
            raise self.error(name.line, f"{name.text!r} cannot be used", because, "file: latest")
        if reference.as_sample(value.text) != value.text:
            because = "it holds what the recovery point tells, and nothing else"
            raise self.error(value.line, f"{value.text!r} cannot be used", because, "{checkpoint_name}")
        return Pointer(name=name.text, template=value.text)

    def environment(self, node: Node) -> tuple[tuple[str, str], ...]:
        """Variables and their values."""
        found = self.entries(node)
        for name, value in found.items():
            if not _VARIABLE.fullmatch(name):
                because = f"{name!r} is no name of a variable"
                raise self.error(value.line, "environment cannot be used", because)
        phrases = {name: self.phrase(value) for name, value in found.items()}
        for phrase in phrases.values():
            if _RESUME_FIELD.search(phrase.text):
                self.checked(phrase)
        return tuple((name, phrase.text) for name, phrase in phrases.items())

    def _needs(self, parts: Mapping[str, Node], needed: Iterable[str], node: Node, key: str) -> None:
        for one in needed:
            if one not in parts:
                raise self.error(node.line, f"{key} cannot be used", f"it has no {one}")

    def _for_all(self, node: Node, key: str) -> Phrase:
        """A TEMPLATE for a file that all workers read."""
        value = self.phrase(node)
        if "rank" in self.checked(value):
            because = "{rank} differs from worker to worker, and they all read the one file"
            raise self.error(value.line, f"{key} cannot be used", because)
        return value

    def word(self, given: Mapping[str, Node], key: str, known: Iterable[str]) -> str:
        """One of the ``known`` words, empty if the key is not there."""
        if key not in given:
            return ""
        phrase = self.phrase(given[key])
        if phrase.text not in known:
            because = f"it is none of {', '.join(known)}"
            raise self.error(phrase.line, f"{key} {phrase.text!r} cannot be used", because)
        return phrase.text


def _items(node: Node) -> tuple[Node, ...]:
    return node.items if isinstance(node, SequenceNode) else (node,)


def _shape(node: Node | None) -> str:
    """What a YAML node is, in words."""
    match node:
        case MappingNode():
            return "a mapping"
        case SequenceNode():
            return "a list"
        case ScalarNode() if node.kind is not ScalarKind.NULL:
            return "text"
        case _:
            return "nothing"
