"""``faultrun config``: the edits of ``--rewrite`` by hand, and the way back."""

import difflib
import os
from pathlib import Path

import click

from faultrun.cli.console import answer, say
from faultrun.cli.options.help.completion import files as offered_files
from faultrun.cli.verbs import example, log_dir_option
from faultrun.core import template
from faultrun.errors import ConfigError, UsageError
from faultrun.model.edit import By, EditResult, Setting

_LOG_DIR = log_dir_option("The run's log_dir: originals are kept in DIR/original.")


@click.group(
    no_args_is_help=False,
    epilog=example(
        "faultrun config set --diff train.yaml:pre_trained ckpt/net-2_5.ckpt", "faultrun config restore"
    ),
)
def config() -> None:
    """Change one value of a configuration file, or put files back as they were."""


@config.command(
    "set",
    context_settings={"ignore_unknown_options": True},
    epilog=example("faultrun config set --diff train.yaml:pre_trained ckpt/net-2_5.ckpt"),
)
@click.argument("target", metavar="FILE:KEY", shell_complete=offered_files)
@click.argument("value")
@click.option("--diff", is_flag=True, help="Show what would change and change nothing.")
@_LOG_DIR
def set_value(target: str, value: str, diff: bool, log_dir: str) -> int:
    """Set KEY of FILE to VALUE; not one other byte changes.

    FILE is YAML, JSON, TOML, INI, .env, shell or Python, by its name; or yaml:FILE:KEY names the format. KEY
    is like pre_trained, model.heads[0].ckpt or, for the second document of a YAML file, 1#pre_trained. The
    value keeps the type that it has in FILE.
    """
    from faultrun.configs.apply import apply, preview
    from faultrun.configs.target import doubtful_keys
    from faultrun.journal.logdir import make_ours

    setting = _setting(target, value)
    originals = Path(log_dir).absolute() / "original"
    for line in doubtful_keys(preview([setting], originals=originals)):
        say(line)
    if diff:
        return _show_diff(setting)
    make_ours(originals.parent)
    for result in apply([setting], originals=originals, by=By.HAND):
        _tell(setting, result, originals)
    return 0


@config.command(short_help="Restore rewritten files.", epilog=example("faultrun config restore train.yaml"))
@click.argument("files", nargs=-1, metavar="[FILE]...", shell_complete=offered_files)
@_LOG_DIR
def restore(files: tuple[str, ...], log_dir: str) -> int:
    """Restore FILEs as they were before the first rewrite; all that were rewritten, if none is named."""
    from faultrun.configs.originals import restore as give_back

    if not Path(log_dir).is_dir():
        because = "originals are kept in the log_dir of the run that rewrote them"
        hint = "faultrun config restore --log_dir=DIR"
        raise ConfigError(f"there is no log_dir {log_dir}", because=because, hint=hint)
    done = give_back(Path(log_dir).absolute() / "original", files, by=By.HAND)
    for file, changed in done.items():
        answer(f"{_shown(file)}  {'restored' if changed else 'already as it was'}")
    if not done:
        answer(f"no file was rewritten in {log_dir}")
    return 0


def _setting(target: str, value: str) -> Setting:
    from faultrun.configs.editors.registry import FORMATS
    from faultrun.configs.target import parse_rewrite

    named = parse_rewrite(target, os.path.exists, FORMATS)
    if not target.endswith(named.key):
        because = "VALUE is a word of its own, without a ="
        hint = f"faultrun config set {named.file}:{named.key} VALUE"
        raise UsageError(f"{target!r} is not FILE:KEY", because=because, hint=hint)
    return Setting(file=named.file, key=named.key, value=template.literal(value), format=named.format)


def _show_diff(setting: Setting) -> int:
    from faultrun.configs.editors.registry import edit
    from faultrun.configs.files import snapshot

    before = snapshot(Path(setting.file)).data
    after = edit(setting.file, before, setting.key, setting.value, format=setting.format).data
    old, new = (data.decode(errors="replace").splitlines(keepends=True) for data in (before, after))
    for line in difflib.unified_diff(old, new, fromfile=setting.file, tofile=setting.file):
        answer(line.rstrip("\r\n"))
    return 0


def _tell(setting: Setting, result: EditResult, originals: Path) -> None:
    for change in result.changes:
        where = f"{setting.file}:{change.line}  {change.key}"
        if change.nothing:
            answer(f"{where} already is {change.after}")
        elif change.before is None:
            answer(f"{where} added: {change.after}")
        else:
            answer(f"{where}: {change.before or '(empty)'} -> {change.after}")
    if result.copy is not None:
        answer(f"{setting.file} {result.copy.reason}: the value is in a copy, {_shown(result.copy.path)}")
    elif not all(change.nothing for change in result.changes):
        answer(f"the original is kept: faultrun config restore, or {_shown(str(originals))}")


def _shown(path: str) -> str:
    """The path as a person in this directory writes it, if that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) else path
