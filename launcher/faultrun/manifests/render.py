"""From a template and what a person gave to a finished text, which must pass our own rules."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from faultrun.errors import ConfigError, FaultrunError, UsageError
from faultrun.manifests.lint import Cluster, lint
from faultrun.manifests.page import Reader
from faultrun.manifests.template import Template, Values, fill, render
from faultrun.manifests.values import BY_NAME, TABLE, Value
from faultrun.model.edit import ScalarKind
from faultrun.text.patch import MalformedText
from faultrun.text.yaml_reader import read
from faultrun.text.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode

RENDERED = "# Rendered by: faultrun render"
"""Begins the comment at the head of what was rendered."""

_SET = "--set"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A value as it was written. ``where`` is ``--set`` or FILE:LINE."""

    name: str
    text: str
    where: str

    def wrong(self, because: str, hint: str) -> FaultrunError:
        """The error that names the place; the caller raises it."""
        if self.where == _SET:
            return UsageError(f"{_SET} {self.name}={self.text} cannot be used", because=because, hint=hint)
        return ConfigError(f"{self.where} {self.name} cannot be used", because=because, hint=hint)


def from_option(text: str) -> Given:
    """Read ``NAME=VALUE``. UsageError for anything else."""
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
        because = "the form is NAME=VALUE"
        raise UsageError(f"{_SET} {text} cannot be used", because=because, hint=f"{_SET} name=resnet")
    return Given(name=name.replace("-", "_"), text=value, where=_SET)


def from_file(file: str, text: str) -> tuple[Given, ...]:
    """Read a YAML mapping of values. ConfigError, naming the line, if it is none."""
    hint = f"{file}: NAME: VALUE, one in a line"
    try:
        roots = read(text).roots
    except MalformedText as error:
        raise ConfigError(f"{file}:{error.line} is not YAML", because=error.because, hint=hint) from None
    if not roots:
        return ()
    root = roots[0]
    if len(roots) > 1 or not isinstance(root, MappingNode):
        because = "it holds several documents" if len(roots) > 1 else "it is not a mapping"
        raise ConfigError(f"{file} holds no values", because=because, hint=hint)
    for first, again in root.doubles:
        because = f"it is already given in line {first.line}"
        raise ConfigError(
            f"{file}:{again.line} {again.value} is given twice", because=because, hint="leave one"
        )
    return tuple(given for key, value in root.entries for given in _given(file, key, value))


def settle(template: Template, given: Sequence[Given]) -> Values:
    """The values of a template: the last one given counts, a list collects those of its place.

    Raises UsageError or ConfigError for a name that the template does not take
    and for a value that cannot be.
    """
    known = [value for value in TABLE if value.name in template.names]
    for one in given:
        if one.name not in {value.name for value in known}:
            raise _unknown(template, one, [value.name for value in known])
    values: dict[str, str | int | bool | tuple[str, ...]] = {}
    for value in sorted(known, key=lambda one: "${" in (one.default or "")):
        values[value.name] = _settled(
            template, value, [one for one in given if one.name == value.name], values
        )
    _agree(values)
    return values


def write(template: Template, given: Sequence[Given], reader: Reader) -> str:
    """The finished text. ConfigError when it would break one of the rules of ``faultrun lint``."""
    values = settle(template, given)
    text = render(template, values, _note(template, given))
    if template.yaml:
        grace_s = values.get("grace_over_time")
        cluster = Cluster(grace_over_time_s=grace_s if isinstance(grace_s, int) else None, reader=reader)
        for finding in lint(text, cluster):
            raise ConfigError(
                f"these values make a {template.name} that `faultrun lint` refuses: {finding.rule}",
                because=f"{finding.what}: {finding.why}",
                hint=finding.fix,
            )
    return text


def explained(template: Template) -> str:
    """Every value of a template as a file of values, with its meaning and default."""
    lines = [f"# Values of {template.name}: {template.summary}"]
    for value in (one for one in TABLE if one.name in template.names):
        lines.append(f"\n# {value.help}")
        if value.default is None:
            lines.append(f"{value.name}: # must be given")
        elif value.many:
            lines.append(f"# {value.name}: []")
        else:
            lines.append(f"# {value.name}: {value.default}".rstrip())
    return "\n".join(lines) + "\n"


def _given(file: str, key: ScalarNode, value: Node) -> Iterable[Given]:
    where = f"{file}:{key.line}"
    match value:
        case ScalarNode():
            text = "" if value.go_kind is ScalarKind.NULL else value.value
            return [Given(name=key.value, text=text, where=where)]
        case SequenceNode() if all(isinstance(item, ScalarNode) for item in value.items):
            texts = [item.value for item in value.items if isinstance(item, ScalarNode)]
            return [Given(name=key.value, text=text, where=where) for text in texts]
        case _:
            raise ConfigError(
                f"{where} {key.value} cannot be used",
                because="it is a mapping, or a list of such",
                hint="one value",
            )


def _unknown(template: Template, one: Given, known: list[str]) -> FaultrunError:
    close = get_close_matches(one.name, known, n=1)
    if one.name in BY_NAME:
        because = f"the template {template.name} has no such value"
    else:
        because = "there is no such value"
    return one.wrong(
        because, f"did you mean {close[0]}?" if close else f"faultrun render {template.name} --list"
    )


def _settled(
    template: Template,
    value: Value,
    given: list[Given],
    settled: Mapping[str, str | int | bool | tuple[str, ...]],
) -> str | int | bool | tuple[str, ...]:
    if value.many:
        last = [one for one in given if one.where == given[-1].where]
        return tuple(str(_read(value, one)) for one in last)
    if given:
        if len([one for one in given if one.where == given[-1].where]) > 1:
            raise given[-1].wrong("it is one value, and is given several times", f"one {value.name}")
        return _read(value, given[-1])
    if value.default is None:
        raise UsageError(
            f"{template.name} needs {value.name}",
            because=value.help[0].lower() + value.help[1:].rstrip("."),
            hint=f"{_SET} {value.name}=...",
        )
    return value.read(fill(value.default, settled))


def _read(value: Value, one: Given) -> str | int | bool:
    hint = f"{_SET} {value.name}={value.default}" if value.default else value.help[0].lower() + value.help[1:]
    try:
        found = value.read(one.text)
    except ValueError as error:
        raise one.wrong(str(error), hint) from None
    if found == "" and value.default != "":
        raise one.wrong("it is empty", hint)
    return found


def _agree(values: Values) -> None:
    """Values that make sense only together."""
    storage = values.get("storage")
    if storage is None:
        return
    for name in ("work", "data"):
        place = str(values.get(name, ""))
        if place and place.startswith("/") == (storage == "claim"):
            wanted = "the name of a claim" if storage == "claim" else "an absolute path"
            raise UsageError(
                f"{name}={place} cannot be used",
                because=f"with storage={storage} it is {wanted}",
                hint=f"{_SET} {name}={'work' if storage == 'claim' else '/path'}, or another storage",
            )
    if storage == "nfs" and not values.get("nfs_server"):
        raise UsageError(
            "storage=nfs needs nfs_server",
            because="a volume is on some server",
            hint=f"{_SET} nfs_server=10.0.0.5",
        )


def _note(template: Template, given: Sequence[Given]) -> str:
    """The command that makes this text again."""
    texts = [f"{_SET} {one.name}={shlex.quote(one.text)}" for one in given]
    return " ".join([RENDERED.removeprefix("# "), template.name, *texts])
