"""Prometheus: an endpoint (``--metrics_port``), a file for node_exporter (``--metrics_file``). A sidecar.

What is exported is the account of the journal so far; no label has more values than there are kinds of
something, whatever the number of ranks. Names, units and help follow Prometheus' conventions:
``docs/metrics.md``.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from faultrun.journal.lines import JournalLine
from faultrun.model.run import Phase
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.observe.account.records import NOT_OVER, TRAINING_AGAIN, Account
from faultrun.observe.outlets.sidecar import Work
from faultrun.observe.status.snapshot import RunMoment, RunSnapshot

_FILE_EVERY_S = 10.0
_BUCKETS_S = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


class Exporter(Work):
    """A collector for prometheus-client. ``endpoint`` is an address and a port to listen on."""

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
        self._file = Path(file) if file else None
        self._snapshot = RunSnapshot(log_dir, policy)
        self._written_s = 0.0
        self._registry = CollectorRegistry()
        self._registry.register(self)
        if endpoint is not None:
            start_http_server(endpoint[1], endpoint[0], self._registry)

    def take(self, line: JournalLine) -> None:
        """Add one line of the journal to what is exported."""
        self._snapshot.take(line)

    def tick(self) -> None:
        """Write the file anew now and then."""
        if time.monotonic() - self._written_s > _FILE_EVERY_S:
            self.end()

    def end(self) -> None:
        """Write the whole file in one step: a short job is known by what it leaves."""
        self._written_s = time.monotonic()
        if self._file is not None:
            with suppress(OSError):
                os.makedirs(self._file.parent, exist_ok=True)  # noqa: PTH103
                write_to_textfile(str(self._file), self._registry)

    def collect(self) -> Iterator[Metric]:
        """What prometheus-client asks for at each scrape."""
        return metrics(self._about, self._snapshot.moment())


def metrics(about: Mapping[str, str], now: RunMoment) -> Iterator[Metric]:
    """Everything that is exported. ``about`` are the labels of the run. What is unknown is left out."""
    account = now.account
    yield InfoMetricFamily("faultrun", "The run that is supervised.", value=dict(about))
    yield _labelled(
        GaugeMetricFamily, "phase", "1 for the phase that the run is in.", "phase",
        {one.value: float(one is now.phase) for one in Phase},
    )  # fmt: skip
    gauges: tuple[tuple[str, str, float | None], ...] = (
        ("incarnation", "Life of the worker group, from 0.", now.incarnation),
        ("world_size", "Workers that the run has.", now.world_size),
        ("workers_up", "Workers that run now.", now.up),
        ("workers_missing", "Workers without whom the others train on.", now.missing),
        ("restarts_left", "Restarts for faults that the budget allows now.", now.restarts_left),
        ("exit_code", "Exit code of the run, once it is over.", account.ended and account.ended[0]),
        ("step", "Global step of the furthest rank.", max(now.steps, default=account.newest_step)),
        ("slowest_step", "Global step of the rank furthest behind.", min(now.steps, default=None)),
        ("step_age_seconds", "Time since the most silent rank reported.", now.oldest_step_s),
        ("productive_ratio", "Training that counts, of wall time.", now.account.productive_share),
    )
    for name, text, value in gauges:
        if value is not None:
            yield GaugeMetricFamily(f"faultrun_{name}", text, value=value)
    counters: tuple[tuple[str, str, float | None], ...] = (
        ("incidents", "Faults that ended workers, and changes of their number.", len(account.faults)),
        ("restarts", "Starts of workers after an incident, charged or not.", account.restarts),
        ("lost_steps", "Steps that were trained twice.", account.lost_steps),
        ("gasp_windows_cut", "Grace windows that ran out with a worker left.", account.saves.cut),
        ("checkpoints_refused", "Checkpoints that were not whole when one was looked for.",
         sum(account.refused.values())),
    )  # fmt: skip
    for name, text, value in counters:
        if value is not None:
            yield CounterMetricFamily(f"faultrun_{name}", text, value=value)
    # Gauges: what looked like training turns out to have been a repetition once a life is over.
    spent = {kind.value: seconds for kind, seconds in account.spent.items()}
    text = "Time of the run so far, by what it was spent on."
    yield _labelled(GaugeMetricFamily, "time_seconds", text, "spent_on", spent)
    causes = Counter(fault.cause for fault in account.faults if fault.end != NOT_OVER)
    yield _labelled(
        CounterMetricFamily, "incident_causes", "Faults that are over, by cause.", "cause", causes
    )
    saves = {"saved": account.saves.saved, "failed": account.saves.failed}
    yield _labelled(CounterMetricFamily, "gasp_saves", "Dying-gasp saves, by outcome.", "outcome", saves)
    yield _recoveries(account)


def _labelled(
    family: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    text: str,
    label: str,
    values: Mapping[str, float],
) -> Metric:
    metric = family(f"faultrun_{name}", text, labels=[label])
    for value, number in values.items():
        metric.add_metric([value], number)
    return metric


def _recoveries(account: Account) -> Metric:
    over = (fault.recovery_s for fault in account.faults if fault.end == TRAINING_AGAIN)
    took = [recovery_s for recovery_s in over if recovery_s is not None]
    counts = [(str(limit), float(sum(one <= limit for one in took))) for limit in _BUCKETS_S]
    histogram = HistogramMetricFamily(
        "faultrun_recovery_seconds", "From a fault until every rank had done a step again."
    )
    histogram.add_metric([], buckets=[*counts, ("+Inf", float(len(took)))], sum_value=sum(took))
    return histogram
