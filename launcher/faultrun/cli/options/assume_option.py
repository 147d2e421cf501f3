"""``--assume`` of the verbs that tell a run's savings."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from faultrun.cli.options.assume_values import changed
from faultrun.model.spec.assumptions import Assumptions

F = TypeVar("F", bound=Callable[..., Any])


def assume_option() -> Callable[[F], F]:
    """The verb's ``--assume``: on top of what the run itself was told; also FAULTRUN_ASSUME."""
    return click.option(
        "--assume",
        metavar="NAME=VALUE,...",
        help="What the savings are compared with: notice, restart, launcher, relaunch, hang, devices; "
        "also FAULTRUN_ASSUME.  [what the run was told]",
    )


def assumed(base: Assumptions, typed: str | None) -> Assumptions:
    """``base`` with what was typed, else with the variable. UsageError names the place."""
    from faultrun.cli.options.option import Layer, Written
    from faultrun.cli.options.settings import Settings

    option, variable = Settings.assume, os.environ.get(Settings.assume.variable, "")
    if typed is None and not variable.strip():
        return base
    written = (
        Written(texts=(variable,), layer=Layer.ENVIRONMENT, where=option.variable)
        if typed is None
        else Written(texts=(typed,), layer=Layer.COMMAND_LINE, where=option.spelled)
    )
    return option.blamed(written, lambda text: changed(base, text))
