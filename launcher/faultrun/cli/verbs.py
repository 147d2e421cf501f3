"""The verbs beside ``run``: the sentence of each, where it is, and the option that most of them share."""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from faultrun.cli.options.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])


class Verb(NamedTuple):
    """Its sentence for the help page, and its module below ``faultrun.cli``."""

    summary: str
    module: str


VERBS = {
    "status": Verb(
        "How a run stands: ranks, steps, restarts left, what comes next; --watch.", "status.command"
    ),
    "stop": Verb("End a run: its workers save, then it exits.", "control"),
    "prestop": Verb("Kubernetes preStop hook: the same, and wait for it.", "control"),
    "checkpoint-now": Verb("Have the workers save without stopping.", "control"),
    "ckpt": Verb("List, verify and choose checkpoints.", "ckpt.command"),
    "config": Verb("Set a value in a configuration file, or restore the originals.", "config"),
    "report": Verb(
        "Where the time of a run went, and what would lose less; as HTML, Markdown, JSON.", "report"
    ),
    "incident": Verb("Print a first-failure card again.", "incident"),
    "recipes": Verb("List the recipes, or show one.", "recipes"),
    "doctor": Verb("What is wrong with this machine or container before a run.", "doctor.command"),
    "render": Verb("Write a manifest, batch script or Dockerfile from a template.", "manifests"),
    "lint": Verb("Check manifests: grace windows, labels, names, mounts; --fix mends.", "manifests"),
}
"""In the order of the help page."""


def verb_command(name: str) -> click.Command:
    """The verb itself; its module is imported now."""
    module = importlib.import_module(f"faultrun.cli.{VERBS[name].module}")
    found = getattr(module, name.replace("-", "_"))
    assert isinstance(found, click.Command)
    return found


def log_dir_option(said: str = f"The run's log_dir; also {Settings.log_dir.variable}.") -> Callable[[F], F]:
    """The verb's ``--log_dir``: that of a run, from the variable if it is not typed."""
    return click.option(
        "--log_dir",
        "--log-dir",
        default=Settings.log_dir.default,
        envvar=Settings.log_dir.variable,
        show_default=True,
        help=said,
    )
