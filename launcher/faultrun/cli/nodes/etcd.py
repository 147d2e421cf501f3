"""``faultrun etcd``: by hand what the first of several nodes does by itself, an etcd for their agreement."""

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultrun.cli.console import say
from faultrun.cli.options.help.completion import folders
from faultrun.cli.options.node_addresses import ETCD_PORT, Endpoint, bare, endpoint
from faultrun.cli.verbs import example
from faultrun.errors import UsageError
from faultrun.platforms import this_machine

if TYPE_CHECKING:
    from faultrun.workers.process import Process

_STOPS = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 129}
_END_S, _SOON_S = 5.0, 5.0


@click.command(
    epilog=example("faultrun etcd", "faultrun etcd --listen=10.0.0.1:2379 --data_dir=/var/lib/faultrun/etcd")
)
@click.option(
    "--listen",
    metavar="HOST[:PORT]",
    default=f"0.0.0.0:{ETCD_PORT}",
    show_default=True,
    help="The address of this machine at which nodes reach it.",
)
@click.option(
    "--data_dir",
    metavar="DIR",
    default="faultrun_etcd",
    show_default=True,
    shell_complete=folders,
    help="Its data and log. The same folder goes on where it was.",
)
def etcd(listen: str, data_dir: str) -> int:
    """Serve an etcd of one member until Ctrl-C or SIGTERM; an end by itself starts it again.

    For runs of several nodes where no etcd is there and no node shall serve it. A host that reaches its port
    can read and write it: keep it inside of the job's network. The program is the etcd in PATH, else that of
    pip install 'faultrun[etcd]'.
    """
    from faultrun.nodes.etcd.clock import boot_now
    from faultrun.nodes.etcd.own_server import EtcdPlace, OwnEtcdServer

    embedded = OwnEtcdServer(EtcdPlace(listen=_address(listen), folder=Path(data_dir).absolute()), _start)
    signals = {*_STOPS, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    again_s = float("-inf")
    try:
        embedded.start()
        _, _, port = embedded.place.listen.rpartition(":")
        say(f"etcd serves at {embedded.place.listen}, its data is in {embedded.place.folder}")
        endpoint = f"{this_machine.hostname()}:{port}"
        say(f"on every node: --rdzv-backend=etcd --rdzv-endpoint={endpoint} --rdzv-id=NAME")
        while True:
            if (told := signal.sigwait(signals)) in _STOPS:
                return _STOPS[signal.Signals(told)]
            if embedded.ended():
                if boot_now() - again_s < _SOON_S:
                    raise embedded.failure()
                say(f"etcd ended by itself and is started again: {embedded.failure().because}")
                embedded.start()
                again_s = boot_now()
    finally:
        embedded.end(_END_S)


def _address(listen: str) -> str:
    """An address and a port, as etcd wants them; it resolves no names to listen at."""
    try:
        host, port = endpoint(listen)
        host = bare(host)
        ip = host if this_machine.is_address(host) else this_machine.address_of(host)
    except (OSError, ValueError) as error:
        hint = f"--listen=0.0.0.0:{ETCD_PORT}"
        raise UsageError(f"--listen={listen} cannot be used", because=str(error), hint=hint) from None
    return Endpoint("", ip, port or ETCD_PORT).at


def _start(argv: tuple[str, ...], log: Path) -> "Process":
    from faultrun.workers.launch import Launch
    from faultrun.workers.process import start

    return start(Launch(argv=argv, env=os.environ, stdout=log))
