"""Prometheus: an endpoint (``--metrics_port``), a file for node_exporter (``--metrics_file``). A sidecar.

What is exported is the account of the journal so far; no label has more values than there are kinds of
something, whatever the number of ranks. The names are described in ``docs/metrics.md``.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultrun.model.spec import RestartPolicy
from faultrun.observe.run_snapshot import RunSnapshot

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_FILE_EVERY_S = 10.0


class Exporter:
    """Implements ``sidecar.Work`` and is a collector for prometheus-client."""

    interval_s = 1.0

    def __init__(
        self,
        log_dir: Path,
        about: Mapping[str, str],
        policy: RestartPolicy,
        endpoint: tuple[str, int] | None,
        file: str,
    ) -> None:
        self._about = dict(about)
        self._endpoint = endpoint
        self._file = Path(file) if file else None
        self._moment = RunSnapshot(log_dir, policy)
        self._written_s = 0.0
        self._write: Callable[[Path], None] | None = None

    def begin(self, lifeline: int) -> None:
        """See ``sidecar.Work``: open the port, if one was asked for."""
        del lifeline
        from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile  # noqa: PLC0415

        registry = CollectorRegistry()
        registry.register(self)
        if self._endpoint is not None:
            addr, port = self._endpoint
            start_http_server(port, addr, registry)
        self._write = lambda path: write_to_textfile(str(path), registry)

    def take(self, line: Mapping[str, Any]) -> None:
        """See ``sidecar.Work``."""
        self._moment.take(line)

    def tick(self) -> None:
        """See ``sidecar.Work``: the file is written anew now and then."""
        if time.monotonic() - self._written_s > _FILE_EVERY_S:
            self._write_file()

    def end(self) -> None:
        """See ``sidecar.Work``: a short job is known by what it leaves."""
        self._write_file()

    def collect(self) -> "Iterator[Metric]":
        """What prometheus-client asks for at each scrape."""
        from faultrun.observe.exporter_metrics import metrics  # noqa: PLC0415

        account = self._moment.account()
        return metrics(self._about, account, self._moment.state(account))

    def _write_file(self) -> None:
        """prometheus-client writes beside it and renames: a reader sees a whole file."""
        self._written_s = time.monotonic()
        if self._file is not None and self._write is not None:
            with suppress(OSError):
                os.makedirs(self._file.parent, exist_ok=True)  # noqa: PTH103
                self._write(self._file)
