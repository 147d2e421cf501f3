"""From a template and what a person gave to a finished text, which must pass our own rules.

Templates are Jinja2's. In YAML each ``{{ }}`` is a whole scalar: what it holds is quoted as it needs, and a
number stays a number. In every other file it is one word of the shell.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import jinja2.meta
from markupsafe import Markup

from faultrun.errors import ConfigError, FaultrunError, UsageError
from faultrun.manifests.lint import lint
from faultrun.manifests.lint_input import LintSettings, Reader
from faultrun.manifests.values import TemplateValue, template_values
from faultrun.model.edit import ScalarKind
from faultrun.text.patch import MalformedText
from faultrun.text.yaml_reader import read
from faultrun.text.yaml_scalar import spelled
from faultrun.text.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode

RENDERED = "# Rendered by: faultrun render"
"""Begins the comment at the head of what was rendered."""

Filled = str | int | bool | tuple[str, ...]
"""A value that a template takes."""

_SET, _NOTE = "--set", "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestTemplate:
    """One template; the comment at its head is about it, and is not copied."""

    name: str
    yaml: bool
    source: str

    @property
    def summary(self) -> str:
        """The first line of its comment."""
        return self.source.partition("{#")[2].partition("\n")[0].strip()

    @property
    def names(self) -> frozenset[str]:
        """The values that it takes."""
        found = jinja2.meta.find_undeclared_variables(self._environment().parse(self.source))
        return frozenset(found) - {_NOTE}

    def filled(self, values: Mapping[str, Filled], note: str) -> str:
        """Fill it in; ``note`` becomes the comment at its head. ``values`` hold all of its names."""
        return self._environment().from_string(self.source).render(values, note=Markup(note))

    def _environment(self) -> jinja2.Environment:
        environment = jinja2.Environment(
            undefined=jinja2.StrictUndefined,
            finalize=_as_yaml if self.yaml else _as_word,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        environment.globals.clear()  # ``namespace`` is a value of ours
        return environment


def load(path: Path) -> ManifestTemplate:
    """Read the template that a file holds; its name is that of the file without the ending."""
    source = path.read_text(encoding="utf-8")
    return ManifestTemplate(name=path.stem, yaml=path.suffix == ".yaml", source=source)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenValue:
    """A value as it was written. ``where`` is ``--set`` or FILE:LINE."""

    name: str
    text: str
    where: str

    def wrong(self, because: str, hint: str) -> FaultrunError:
        """The error that names the place; the caller raises it."""
        if self.where == _SET:
            given = f"{_SET} {self.name}{'=' * bool(self.text)}{self.text}"
            return UsageError(f"{given} cannot be used", because=because, hint=hint)
        return ConfigError(f"{self.where} {self.name} cannot be used", because=because, hint=hint)


def from_option(text: str) -> GivenValue:
    """Read ``NAME=VALUE``, or a name alone, which is then empty. UsageError for anything else."""
    name, _, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
        because = "the form is NAME=VALUE"
        raise UsageError(f"{_SET} {text} cannot be used", because=because, hint=f"{_SET} name=resnet")
    return GivenValue(name=name.replace("-", "_"), text=value, where=_SET)


def from_file(file: str, text: str) -> tuple[GivenValue, ...]:
    """Read a YAML mapping of values. ConfigError, naming the line, if it is none."""
    hint = f"{file}: NAME: VALUE, one in a line"
    try:
        roots = read(text).roots
    except MalformedText as error:
        raise ConfigError(f"{file}:{error.line} is not YAML", because=error.because, hint=hint) from None
    if not roots:
        return ()
    if len(roots) > 1 or not isinstance((root := roots[0]), MappingNode):
        because = "it holds several documents" if len(roots) > 1 else "it is not a mapping"
        raise ConfigError(f"{file} holds no values", because=because, hint=hint)
    for first, again in root.doubles:
        because = f"it is already given in line {first.line}"
        what = f"{file}:{again.line} {again.value} is given twice"
        raise ConfigError(what, because=because, hint="leave one")
    return tuple(
        GivenValue(name=key.value, text=one, where=f"{file}:{key.line}")
        for key, value in root.entries
        for one in _texts(f"{file}:{key.line} {key.value}", value)
    )


def settle(template: ManifestTemplate, given: Sequence[GivenValue]) -> dict[str, Filled]:
    """The values of a template: the last one given counts, a list collects those of its place.

    Raises UsageError or ConfigError for a name that the template does not take or a value that cannot be.
    """
    known = _taken(template)
    for one in given:
        if one.name not in {value.name for value in known}:
            raise _unknown(template, one, [value.name for value in known])
    values: dict[str, Filled] = {}
    for value in known:
        own = [one for one in given if one.name == value.name]
        last = [one for one in own if one.where == own[-1].where]
        if value.many:
            values[value.name] = tuple(str(_read(value, one)) for one in last)
        elif len(last) > 1:
            raise last[-1].wrong("it is one value, and is given several times", f"one {value.name}")
        elif last:
            values[value.name] = _read(value, last[-1])
        elif value.default is None:
            hint = f"{_SET} {value.name}=..."
            because = value.phrase.rstrip(".")
            raise UsageError(f"{template.name} needs {value.name}", because=because, hint=hint)
        else:
            values[value.name] = value.read(value.default.replace("${name}", str(values.get("name", ""))))
    _agree(values)
    return values


def write(template: ManifestTemplate, given: Sequence[GivenValue], reader: Reader) -> str:
    """The finished text. ConfigError when it would break one of the rules of ``faultrun lint``."""
    values = settle(template, given)
    # the command that makes this text again
    sets = (f"{_SET} {one.name}{f'={shlex.quote(one.text)}' if one.text else ''}" for one in given)
    note = [f"{RENDERED[2:]} {template.name}", *sets]
    text = template.filled(values, " ".join(note))
    if template.yaml:
        grace_s = values.get("grace_over_time")
        over_s = grace_s if isinstance(grace_s, int) else None
        for finding in lint(text, LintSettings(grace_over_time_s=over_s, reader=reader)).findings:
            what = f"these values make a {template.name} that `faultrun lint` refuses: {finding.rule}"
            raise ConfigError(what, because=f"{finding.what}: {finding.why}", hint=finding.fix)
    return text


def explained(template: ManifestTemplate) -> str:
    """Every value of a template as a file of values, with its meaning and default."""
    lines = [f"# Values of {template.name}: {template.summary}"]
    for value in _taken(template):
        lines.append(f"\n# {value.help}")
        if value.default is None:
            lines.append(f"{value.name}: # must be given")
        else:
            lines.append(f"# {value.name}: {'[]' if value.many else value.default}".rstrip())
    return "\n".join(lines) + "\n"


def _taken(template: ManifestTemplate) -> list[TemplateValue]:
    names = template.names
    return [value for value in template_values().values() if value.name in names]


def _as_yaml(value: Filled) -> str:
    assert not isinstance(value, tuple)
    return value if isinstance(value, Markup) else spelled(value)


def _as_word(value: Filled) -> str:
    return value if isinstance(value, Markup) else shlex.quote(str(value))


def _texts(where: str, value: Node) -> list[str]:
    match value:
        case ScalarNode():
            return ["" if value.go_kind is ScalarKind.NULL else value.value]
        case SequenceNode() if all(isinstance(item, ScalarNode) for item in value.items):
            return [item.value for item in value.items if isinstance(item, ScalarNode)]
        case _:
            because = "it is a mapping, or a list of such"
            raise ConfigError(f"{where} cannot be used", because=because, hint="one value")


def _unknown(template: ManifestTemplate, one: GivenValue, known: list[str]) -> FaultrunError:
    close = get_close_matches(one.name, known, n=1)
    elsewhere = f"the template {template.name} has no such value"
    because = elsewhere if one.name in template_values() else "there is no such value"
    hint = f"did you mean {close[0]}?" if close else f"faultrun render {template.name} --list"
    return one.wrong(because, hint)


def _read(value: TemplateValue, one: GivenValue) -> str | int | bool:
    hint = f"{_SET} {value.name}={value.default}" if value.default else value.phrase
    try:
        found = value.read(one.text)
    except ValueError as error:
        raise one.wrong(str(error), hint) from None
    if found == "" and value.default != "" and not value.may_be_empty:
        raise one.wrong("it is empty", hint)
    return found


def _agree(values: Mapping[str, Filled]) -> None:
    """Values that make sense only together."""
    _agree_on_nodes(values)
    if (storage := values.get("storage")) is None:
        return
    for name in ("work", "data"):
        if (place := str(values.get(name, ""))) and place.startswith("/") == (storage == "claim"):
            wanted = "the name of a claim" if storage == "claim" else "an absolute path"
            because = f"with storage={storage} it is {wanted}"
            hint = f"{_SET} {name}={'work' if storage == 'claim' else '/path'}, or another storage"
            raise UsageError(f"{name}={place} cannot be used", because=because, hint=hint)
    if storage == "nfs" and not values.get("nfs_server"):
        because = "a volume is on some server"
        raise UsageError("storage=nfs needs nfs_server", because=because, hint=f"{_SET} nfs_server=10.0.0.5")


def _agree_on_nodes(values: Mapping[str, Filled]) -> None:
    if values.get("nodes") == 1 and values.get("spares"):
        because = "a spare takes the place of one of several nodes"
        raise UsageError(f"spares={values['spares']} cannot be used", because=because, hint=f"{_SET} nodes=2")
    if values.get("nodes", 1) != 1 and values.get("etcd_image") == "" and not values["etcd"]:
        because = "several nodes agree through an etcd"
        hint = f"{_SET} etcd=HOST:2379, or {_SET} etcd_image=IMAGE for one in the job"
        raise UsageError(f"nodes={values['nodes']} needs etcd or etcd_image", because=because, hint=hint)
