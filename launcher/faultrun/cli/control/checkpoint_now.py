"""``faultrun checkpoint-now``: have the workers save without stopping."""

import os

import click

from faultrun.cli.console import say
from faultrun.cli.control.client import LOG_DIR_VARIABLE, Conversation, NobodyListens, address_of

_LAST_WORD_S = 5.0


@click.command("checkpoint-now")
@click.option(
    "--log_dir",
    "--log-dir",
    default="faultrun_log",
    envvar=LOG_DIR_VARIABLE,
    show_default=True,
    help=f"The run's log_dir; also {LOG_DIR_VARIABLE}.",
)
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds that a save may take.")
def checkpoint_now(log_dir: str, timeout: float) -> int:
    """Ask every worker that uses faultrun's SDK to save now and go on training; print what each did.

    Exits 0 when all of them saved, 1 otherwise.
    """
    try:
        talk = Conversation(address_of(log_dir, os.environ), within_s=timeout + _LAST_WORD_S)
        talk.ask("save", deadline_s=timeout)
    except NobodyListens:
        say("the run has already ended")
        return 1
    try:
        return _follow(talk)
    except TimeoutError:
        say(f"some ranks had not saved after {timeout:g} s")
        return 1
    finally:
        talk.close()


def _follow(talk: Conversation) -> int:
    awaited: set[int] = set()
    code = 0
    for said in talk.answers():
        rank = said.get("rank")
        match said["kind"]:
            case "saving":
                awaited = set(said.get("ranks", ()))
                if not awaited:
                    say("no worker uses faultrun's SDK: nobody can be asked to save")
                    return 1
            case "saved":
                say(f"rank {rank} saved step {said.get('step')}: {said.get('path')}")
                awaited.discard(int(rank or 0))
            case "failed":
                say(f"rank {rank} could not save: {said.get('why')}")
                awaited.discard(int(rank or 0))
                code = 1
            case _:
                continue
        if not awaited:
            return code
    return 1
