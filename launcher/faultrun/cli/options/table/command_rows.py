"""The options about the command itself, a row each, as in ``run_rows``."""

from faultrun.cli.options import values
from faultrun.cli.options.choices import DryRun
from faultrun.cli.options.option import Option, Options, Switch, Takes


class CommandOptions(Options):
    """How the command itself behaves."""

    join = Switch()
    """False returns once the workers run and supervises in the background."""
    exit_code_on_stop = Option(
        "CODE", values.whole(0, 255), default=None, shown="143 for SIGTERM, 130 for SIGINT", example="0"
    )
    """Exit code when told to stop."""
    sim_level = Option("0..3", values.whole(-1, 3), default=-1, example="1")
    """MindSpore's dry run (MS_SIMULATION_LEVEL); -1 is none."""
    sim_rank_id = Option("RANK", values.whole(-1, values.MOST_WORKERS), default=-1, example="0")
    """Dry run this one rank only; -1 runs all."""
    config = Option(
        "FILE|none", str, default="", shown="faultrun.yaml beside SCRIPT", example="faultrun.yaml"
    )
    """Options from a YAML file, by name; none: from no file."""
    dry_run = Option(
        "[=full]",
        values.dry_run,
        default=DryRun.NONE,
        shown="",
        takes=Takes.SWITCH,
        example="--dry-run",
        dashes=True,
    )
    """Print what would be started, changed and resumed from; start nothing. Of many workers the first are
    shown and how the others differ; =full shows all.
    """
