"""The helper process of a node that serves etcd for its run: it starts etcd again whenever that ends."""

import json
import os
import time
from pathlib import Path

from faultrun.errors import FaultrunError
from faultrun.files import readable
from faultrun.nodes.etcd.own_server import EtcdOutOfRoom, EtcdPlace, OwnEtcdServer
from faultrun.workers.launch import Launch
from faultrun.workers.process import start

_ETCD_END_S, _PAUSE_S = 3.0, 0.5
_STANDARD_STREAMS = 3


def keep(listen: str, folder: Path, words: int, stop: int) -> None:
    """Serve etcd at ``listen`` with its data in ``folder``, until none holds the other end of ``stop``."""
    for _ in range(_STANDARD_STREAMS):
        os.open(os.devnull, os.O_RDWR)
    place = EtcdPlace(listen=listen, folder=folder)
    etcd = OwnEtcdServer(place, lambda argv, log: start(Launch(argv=argv, env=os.environ, stdout=log)))
    try:
        etcd.start()
    except FaultrunError as error:
        full = isinstance(error, EtcdOutOfRoom)
        said = {"what": error.what, "because": error.because, "hint": error.hint, "full": full}
        os.write(words, json.dumps(said).encode() + b"\n")
        return
    os.write(words, b"{}\n")
    while not _supervisor_gone(etcd, stop):
        time.sleep(_PAUSE_S)  # in a process that does nothing else
        try:
            etcd.begin()
        except FaultrunError:
            continue  # its log says why; the nodes hold meanwhile
    etcd.end(_ETCD_END_S)


def _supervisor_gone(etcd: OwnEtcdServer, stop: int) -> bool:
    """Wait for an end: the supervisor's (True), or etcd's."""
    running = not etcd.ended()
    ends = [etcd.process.pidfd] if running and etcd.process is not None else []
    return stop in readable(None if running else _PAUSE_S, stop, *ends)
