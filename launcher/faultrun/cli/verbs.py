"""The verbs beside ``run``: the sentence of each, where it is, its examples, and what most of them share.

Names of options work with ``_`` and with ``-`` below every verb: the program's context spells them alike.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from faultrun.cli.options.help.completion import folders
from faultrun.cli.options.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])


class Verb(NamedTuple):
    """Its sentence for the help page, and its module below ``faultrun.cli``."""

    summary: str
    module: str


VERBS = {
    "status": Verb("How a run stands, and what comes next; --watch.", "status.command"),
    "logs": Verb("What the workers printed; -f follows through restarts.", "logs"),
    "stop": Verb("End a run: its workers save, then it exits.", "control"),
    "prestop": Verb("Kubernetes preStop hook: the same, and wait for it.", "control"),
    "checkpoint-now": Verb("Have the workers save and go on.", "control"),
    "ckpt": Verb("List, verify and choose checkpoints.", "ckpt.command"),
    "config": Verb("Set a value in a configuration file, or restore it.", "config"),
    "report": Verb("Where the time of a run went, and what would lose less.", "report"),
    "incident": Verb("Print a first-failure card again.", "incident"),
    "recipes": Verb("List the recipes, or show one.", "recipes"),
    "rehearse": Verb("Prove in minutes that a training survives every fault.", "rehearse.command"),
    "doctor": Verb("Check this machine or container before a run.", "doctor.command"),
    "adopt": Verb("Turn another launcher's command into faultrun.yaml.", "adopt.command"),
    "render": Verb("Write a manifest, batch script or Dockerfile.", "manifests"),
    "lint": Verb("Check manifests: stop windows, exit codes, labels.", "manifests"),
    "etcd": Verb("Serve an etcd for runs of several nodes.", "nodes.etcd"),
    "docs": Verb("Read the documentation: its pages, or one of them.", "docs"),
}
"""In the order of the help page."""


def verb_command(name: str) -> click.Command:
    """The verb itself; its module is imported now."""
    module = importlib.import_module(f"faultrun.cli.{VERBS[name].module}")
    found = getattr(module, name.replace("-", "_"))
    assert isinstance(found, click.Command)
    return found


def example(*lines: str) -> str:
    """The end of a verb's help page: commands that work as they stand. For click's ``epilog``."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


def log_dir_option(said: str = f"The run's log_dir; also {Settings.log_dir.variable}.") -> Callable[[F], F]:
    """The verb's ``--log_dir``: that of a run, from the variable if it is not typed.

    Where several nodes share what is named, each machine means its own folder in it.
    """
    return click.option(
        "--log_dir",
        metavar="DIR",
        shell_complete=folders,
        default=Settings.log_dir.default,
        envvar=Settings.log_dir.variable,
        show_default=True,
        help=said,
        callback=_of_this_machine,
    )


def _of_this_machine(_: click.Context, __: click.Parameter, path: str) -> str:
    from faultrun.journal.logdir import of_this_machine  # a run's start need not wait for it
    from faultrun.platforms.this_machine import hostname

    return str(of_this_machine(Path(path), hostname()))
