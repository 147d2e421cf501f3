"""``faultrun render`` writes a manifest from a template; ``faultrun lint`` says what is wrong with one."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultrun import __version__
from faultrun.cli.console import answer, say
from faultrun.cli.options.command import FaultrunGroup, run_command
from faultrun.cli.options.help.completion import files as offered_files
from faultrun.cli.options.help.completion import names
from faultrun.cli.options.node_addresses import endpoints, fewest_nodes
from faultrun.cli.options.settings import Asked, Settings, collect
from faultrun.cli.verbs import example
from faultrun.errors import ConfigError, FaultrunError, UsageError
from faultrun.manifests import lint as rules
from faultrun.manifests.lint_input import GRACE_OVER_TIME_RANGE_S, LintSettings, PodRequirements

if TYPE_CHECKING:
    from faultrun.manifests.render import ManifestTemplate

_FINDINGS = 1
_NOT_A_MANIFEST = 65
_STDIN = "-"
_MOST_BYTES, _MOST_BYTES_OF_VALUES = 10_000_000, 1 << 20
_ABOUT_ITSELF = frozenset({"-h", "--help", "--help-all", "--version"})


@click.command(
    epilog=example("faultrun render", "faultrun render job --set name=a --set image=train:1 > job.yaml")
)
@click.argument("name", required=False, metavar="[NAME]", shell_complete=names(lambda: sorted(_templates())))
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A value.  (repeatable)")
@click.option(
    "-f",
    "--values",
    "files",
    multiple=True,
    metavar="FILE",
    shell_complete=offered_files,
    help="Values from a YAML file.  (repeatable)",
)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE.  [standard output]")
@click.option("--list", "explain", is_flag=True, help="Explain the values of NAME, as a file for -f.")
def render(
    name: str | None, settings: tuple[str, ...], files: tuple[str, ...], output: str | None, explain: bool
) -> int:
    """Write what template NAME makes of the values; without NAME, list the templates.

    --set comes before -f, and the last -f before the first. What is written
    passes `faultrun lint`, and names that must agree do.
    """
    from faultrun.manifests import render as rendering

    templates = _templates()
    if name is None:
        width = max(map(len, templates), default=0)
        for known, one in templates.items():
            answer(f"{known.ljust(width)}  {one.summary}")
        return 0
    template = _template(name, templates)
    if explain:
        click.echo(rendering.explained(template), nl=False)
        return 0
    given = [one for file in files for one in rendering.from_file(file, _values(file))]
    given += [rendering.from_option(text) for text in settings]
    text = rendering.write(template, given, read_requirements)
    if output is None:
        click.echo(text, nl=False)
    else:
        _save(Path(output), text)
    return 0


@click.command(epilog=example("faultrun lint job.yaml"))
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=offered_files)
@click.option(
    "--grace_over_time",
    type=click.IntRange(*GRACE_OVER_TIME_RANGE_S),
    metavar="SECONDS",
    help="grace-over-time of the cluster's scheduler.  [900, or as a scheduler's config map in FILE says]",
)
def lint(files: tuple[str, ...], grace_over_time: int | None) -> int:
    """Check manifests: stop windows, restart policies, faultrun's container, MindCluster's labels and mounts.

    Each finding is a line, FILE:LINE: RULE what · why · fix. Ends with 1 if there
    are findings, with 65 if a FILE is not a manifest. The last line on stderr names
    the kinds that no rule looks at; kubeconform and kube-linter check the rest.
    """
    settings = LintSettings(grace_over_time_s=grace_over_time, reader=read_requirements)
    told = [_told(file, settings) for file in files]
    checked = [one for one in told if one is not None]
    if checked:
        unchecked = ", ".join(dict.fromkeys(kind for one in checked for kind in one.unchecked))
        silent = f"; not checked: {unchecked}" if unchecked else ""
        say(
            f"checked: what faultrun and MindCluster need{silent}; kubeconform and kube-linter check the rest"
        )
    if len(checked) < len(told):
        return _NOT_A_MANIFEST
    return _FINDINGS if any(one.findings for one in checked) else 0


def read_requirements(words: tuple[str, ...], environ: Mapping[str, str]) -> PodRequirements:
    """What ``faultrun WORDS`` asks for with these variables. Raises UsageError as a start would.

    A config file is in the container, not here: with one, nothing is known, and
    neither is it of a verb, or where only help or version is asked for.
    """
    if not words or _ABOUT_ITSELF.intersection(words):
        return PodRequirements()
    program = FaultrunGroup(run_command(lambda asked: asked), version=__version__)
    asked = program.main(list(words), "faultrun", standalone_mode=False)
    if not isinstance(asked, Asked) or "config" in asked.options or "FAULTRUN_CONFIG" in environ:
        return PodRequirements()
    settings = collect(asked, environ)
    own, both = settings.stop_grace, settings.shutdown_timeout
    nodes = _nodes(settings)
    several = _meeting_place(settings) if nodes is not None and nodes > 1 else PodRequirements()
    return replace(
        several,
        nodes=nodes,
        min_nodes=settings.read(Settings.nnodes, fewest_nodes) if settings.gave(Settings.nnodes) else None,
        stop_grace_s=both if own is None else own,
        log_dir=settings.log_dir,
        checkpoint_dirs=settings.texts(Settings.checkpoint_dir),
        resume=settings.read(Settings.resume, str),
    )


def _meeting_place(settings: Settings) -> PodRequirements:
    """Where several nodes agree, as far as the command line says it."""
    backend = settings.rdzv_backend.strip().lower()
    named = settings.read(Settings.rdzv_endpoint, endpoints) or ()
    lease_s = settings.lease_ttl
    if backend.startswith("etcd") or len(named) > 1 or any(one.scheme for one in named):
        return PodRequirements(lease_s=lease_s, etcd=tuple(one.host for one in named))
    host = settings.master_addr if settings.gave(Settings.master_addr) else "".join(one.host for one in named)
    return PodRequirements(lease_s=lease_s, leader=host or None)


def _nodes(settings: Settings) -> int | None:
    """Nodes of the run; None where the platform may say how many."""
    here = str(settings.local_worker_num or settings.read(Settings.nproc_per_node, str))
    size = int(here) if here.isdigit() else 0
    if settings.gave(Settings.nnodes):
        return settings.nnodes
    return settings.worker_num // size if settings.worker_num and size else None


def _templates() -> dict[str, "ManifestTemplate"]:
    """The packaged templates by name."""
    from faultrun.configs.recipes.packaged import templates_folder
    from faultrun.manifests.render import load

    files = (path for path in sorted(templates_folder().iterdir()) if path.is_file() and path.suffix != ".md")
    return {path.stem: load(path) for path in files}


def _template(name: str, templates: dict[str, "ManifestTemplate"]) -> "ManifestTemplate":
    names = {known.lower(): known for known in templates}
    if name.lower() in names:
        return templates[names[name.lower()]]
    close = get_close_matches(name.lower(), names, n=1)
    because = "the templates are " + ", ".join(templates)
    hint = f"faultrun render {names[close[0]]}" if close else "faultrun render lists them"
    raise UsageError(f"there is no template {name!r}", because=because, hint=hint)


def _values(file: str) -> str:
    try:
        with Path(file).open("rb") as opened:
            return opened.read(_MOST_BYTES_OF_VALUES).decode("utf-8-sig")
    except OSError as error:
        because = error.strerror or str(error)
    except UnicodeDecodeError as error:
        because = f"byte {error.start} is not UTF-8 text"
    what = f"cannot read the values of {file}"
    raise ConfigError(what, because=because, hint="faultrun render NAME --list")


def _save(path: Path, text: str) -> None:
    """Write a new file, or one that was rendered before: a hand-written one is not ours to replace."""
    from faultrun.manifests.render import RENDERED

    try:
        if path.exists() and RENDERED not in path.read_text(encoding="utf-8", errors="replace"):
            because, hint = "it was not rendered by faultrun", "another -o FILE, or move it away"
            raise UsageError(f"{path} is already there", because=because, hint=hint)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        because, hint = error.strerror or str(error), f"ls -ld {path.parent}"
        raise ConfigError(f"{path} could not be written", because=because, hint=hint) from error


def _told(file: str, settings: LintSettings) -> rules.Checked | None:
    """Print the findings of a file; None if it is no manifest, and the others are checked all the same."""
    try:
        checked = rules.lint(_text(_content(file)), settings)
    except rules.NotAManifest as error:
        _refuse(file, error.because, error.line)
        return None
    for finding in checked.findings:
        answer(finding.told(file))
    return checked


def _content(file: str) -> bytes:
    if file == _STDIN:
        return sys.stdin.buffer.read(_MOST_BYTES + 1)
    try:
        with Path(file).open("rb") as opened:
            return opened.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        hint = "check the path; - reads standard input"
        raise UsageError(f"no {file}", because="there is no such file", hint=hint) from None
    except OSError as error:
        raise rules.NotAManifest(error.strerror or str(error), 0) from None


def _text(data: bytes) -> str:
    if len(data) > _MOST_BYTES:
        raise rules.NotAManifest("it is larger than 10 MB", 0)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise rules.NotAManifest(f"byte {error.start} is not UTF-8 text", 0) from None


def _refuse(file: str, because: str, line: int) -> None:
    what = f"{file}:{line} is not a manifest" if line else f"{file} is not a manifest"
    say(str(FaultrunError(what, because=because, hint="faultrun render vcjob --set image=IMAGE shows one")))
