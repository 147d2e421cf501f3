"""The dozen options that people use, each in one line: what ``faultrun --help`` shows of a run.

Everything else is on ``--help-all``. A row names its option; default and spelling are the option's own.
"""

from typing import Any

from faultrun.cli.options.option import Option
from faultrun.cli.options.settings import Settings

EXAMPLE = (
    "faultrun --worker_num=4 --checkpoint_dir=ckpt \\",
    "  --resume_arg=--resume={checkpoint} train.py",
)
"""Lines to be typed as they stand."""
SENTENCE = (
    "Start N training workers and keep them training: when one fails, the others save, and all go on "
    "from the newest whole checkpoint."
)
_LONGEST_DEFAULT = 12


_ROWS: tuple[tuple[Option[Any], str, str], ...] = (
    (Settings.worker_num, "N", "Workers; without it one for each visible device."),
    (Settings.recipe, "NAME", "Settings for a known code: faultrun recipes."),
    (Settings.checkpoint_dir, "DIR", "Where the script saves its checkpoints."),
    (Settings.resume_arg, "TEMPLATE", "How it is told of one: --resume={checkpoint}."),
    (Settings.rewrite, "FILE:KEY", "Or: the value in its configuration to set."),
    (Settings.max_restarts, "N", f"Restarts for faults within {Settings.restart_window.default_text}."),
    (Settings.grace, "TIME", "Time to save after a peer died."),
    (Settings.hang_timeout, "TIME", "Replace a rank without a step for so long."),
    (Settings.standby, "N", "Spare processes that take over at once."),
    (Settings.log_dir, "DIR", "Logs, journal, cards and report."),
    (Settings.tee, "3", "Show the workers' output here, too."),
    (Settings.config, "FILE", "Options from FILE; else faultrun.yaml beside SCRIPT."),
    (Settings.dry_run, "", "Show what would be started; start nothing."),
)


def everyday_rows() -> list[tuple[str, str]]:
    """The names with what follows them, and what they do, with a default that is short."""
    return [(_term(option, metavar), _with_default(option, says)) for option, metavar, says in _ROWS]


def _term(option: Option[Any], metavar: str) -> str:
    short = f"-{option.short}, " if option.short else ""
    return f"{short}{option.spelled} {metavar}".rstrip()


def _with_default(option: Option[Any], says: str) -> str:
    default = option.default_text
    shown = default not in ("", "none", "0") and len(default) <= _LONGEST_DEFAULT
    return f"{says}  [{default}]" if shown else says
