"""Which device belongs to which local rank: the rank table, looked at again before every start.

A platform that resets a device or places a job anew writes the table again; what
it said at the first start need not be so at the next.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from faultrun.errors import ConfigError, FaultrunError
from faultrun.model.spec import RunSpec
from faultrun.platforms.rank_table import RankTable, node_names, parse_rank_table, seen_devices
from faultrun.platforms.rank_table_wait import Awaited, NotFinished, Patience, await_file

_DEV = Path("/dev")


class Abandoned(FaultrunError):
    """The run ended while the rank table was waited for."""


class DeviceAssignment:
    """``look`` runs in the helper thread and may wait; ``abandon`` ends that wait from any thread."""

    def __init__(self, spec: RunSpec, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._spec = spec
        self._environ = environ
        self._say = say
        self._abandoned = threading.Event()

    def look(self) -> tuple[int, ...]:
        """The device of each local rank; empty when no rank table decides it.

        Raises NotFinished (69) when the table is not finished in time or
        gives this run other devices than it began with, ConfigError when it is wrong.
        """
        if not self._spec.devices:
            return ()
        path = self._spec.rendezvous.rank_table_file
        if not path:
            return self._spec.devices
        patience = Patience(
            within_s=self._spec.rendezvous.rank_table_wait_s, pause=self._pause, say=self._say
        )
        try:
            table = await_file(Awaited(what="rank table", parse=parse_rank_table), path, patience)
            server = table.server_of(node_names(self._environ))
            devices = seen_devices(server.devices, self._environ, _DEV)
        except ValueError as error:
            raise ConfigError(
                f"the rank table {path} cannot be used",
                because=str(error),
                hint="it was right when the run began: the platform's controller logs say what changed",
            ) from None
        self._check_size(path, table, devices)
        return devices

    def abandon(self) -> None:
        """Wait no longer: nobody needs the answer any more."""
        self._abandoned.set()

    def _check_size(self, path: str, table: RankTable, devices: tuple[int, ...]) -> None:
        """In-place restarts keep the world; another one is for a new pod to begin with."""
        if len(devices) == len(self._spec.devices):
            return
        raise NotFinished(
            f"the rank table {path} is another run's",
            because=f"it now gives this node {len(devices)} of {table.world_size} ranks, "
            f"and the run has {len(self._spec.devices)} workers here",
            hint="start the job anew: a run does not change its size",
        )

    def _pause(self, seconds: float) -> None:
        if self._abandoned.wait(seconds):
            raise Abandoned("abandoned", because="the run has ended", hint="")


def device_of(devices: tuple[int, ...], local_rank: int) -> int | None:
    """The device number of a local rank; None where its own number serves."""
    return devices[local_rank] if local_rank < len(devices) else None
