"""Every option of ``faultrun run``, as data.

The command line, the ``FAULTRUN_*`` variables, the keys of ``--config`` and the help page are all made
from this table. What a value means is decided in ``resolve``, not here.

Sources: msrun's options from mindspore/parallel/cluster/run.py of MindSpore 2.10, torchrun's from
torch/distributed/run.py of PyTorch 2.13.
"""

from collections.abc import Iterator

from faultrun.cli.options.option import Option, Section, Takes
from faultrun.cli.options.recovery import FAILURES, LOGS, RESUMING
from faultrun.cli.options.start import MEETING, WORKERS
from faultrun.cli.options.view import WATCHING

COMMAND = Section(
    title="This command",
    options=(
        Option(
            name="join",
            metavar="True|False",
            help="False returns once the workers run and supervises in the background.",
            takes=Takes.SWITCH,
            default="True",
            example="--join=False",
        ),
        Option(
            name="exit_code_on_stop",
            metavar="CODE",
            help="Exit code when told to stop.",
            default="143 for SIGTERM, 130 for SIGINT",
            example="--exit_code_on_stop=0",
        ),
        Option(
            name="sim_level",
            metavar="0..3",
            help="MindSpore's dry run (MS_SIMULATION_LEVEL); -1 is none.",
            default="-1",
            example="--sim_level=1",
        ),
        Option(
            name="sim_rank_id",
            metavar="RANK",
            help="Dry run this one rank only; -1 runs all.",
            default="-1",
            example="--sim_rank_id=0",
        ),
        Option(
            name="config",
            metavar="FILE",
            help="Options from a YAML file, by name.",
            example="--config=faultrun.yaml",
        ),
        Option(
            name="dry_run",
            metavar="",
            help="Print what would be started, changed and resumed from; start nothing.",
            takes=Takes.NOTHING,
            dashes=True,
            example="--dry-run",
        ),
    ),
)

SECTIONS: tuple[Section, ...] = (WORKERS, MEETING, FAILURES, RESUMING, LOGS, WATCHING, COMMAND)


def every_option() -> Iterator[Option]:
    """All options in the order of the help page."""
    for section in SECTIONS:
        yield from section.options


BY_NAME: dict[str, Option] = {option.name: option for option in every_option()}
