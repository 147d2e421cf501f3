"""``faultrun logs``: what the workers printed, across the lives of a run, also while it goes on."""

import json
import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import click

from faultrun.cli.status.gather import who_supervises
from faultrun.cli.verbs import example, log_dir_option
from faultrun.core.humanize import rank_names
from faultrun.errors import LogDirError
from faultrun.journal.append import FILE_NAME
from faultrun.journal.lines import JournalFollower
from faultrun.journal.logdir import read_record, which_log_dir
from faultrun.model.line_tone import Tone, painted
from faultrun.model.printable import console_output, last_written, printable
from faultrun.observe.console.incarnation_marks import LifeMarks
from faultrun.observe.console.worker_output import (
    GrowingLog,
    OutputLine,
    WorkerLog,
    begin_of_last,
    in_order,
    last,
    lives,
    logs_of,
    whole,
)
from faultrun.observe.status.status import Supervised
from faultrun.terminal import has_colours, is_terminal
from faultrun.workers.logs.streams import prefix_of

_LOOK_S = 0.2
_ANYBODY_EVERY = 10
"""How many looks pass until we look whether a supervisor lives."""
_USUAL_LINES = 10
_STDOUT = 1


@click.command(epilog=example("faultrun logs -f", "faultrun logs --rank=3 -n 100 --log_dir=faultrun_log"))
@log_dir_option()
@click.option(
    "-f", "--follow", is_flag=True, help="Go on showing, through restarts, until the run has ended."
)
@click.option("--rank", "ranks", type=click.IntRange(0), multiple=True, help="Only this rank.  (repeatable)")
@click.option(
    "--incarnation", type=click.IntRange(0), metavar="N", help="Only this incarnation.  [all of them]"
)
@click.option(
    "-n", "--lines", "count", type=click.IntRange(1), metavar="N",
    help=f"Only the last N lines of each rank.  [all; with -f {_USUAL_LINES}]",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print an object a line.")
def logs(
    log_dir: str,
    follow: bool,
    ranks: tuple[int, ...],
    incarnation: int | None,
    count: int | None,
    as_json: bool,
) -> int:
    """Show what the workers printed, each line behind its [rank], and where a new incarnation begins.

    Lines that begin with a time are put in that order. Reads files only: no supervisor is needed.
    """
    folder = Path(log_dir)
    chosen = _chosen(folder, ranks, incarnation)
    printer = _Printer(as_json=as_json, several=len(ranks) != 1)
    with suppress(KeyboardInterrupt):
        if follow and incarnation is None:
            _Following(folder, ranks, printer).run(count or _USUAL_LINES)
        else:
            _show(folder, chosen, count, printer)
    return 0


def _chosen(folder: Path, ranks: tuple[int, ...], incarnation: int | None) -> list[WorkerLog]:
    """The logs that were asked for. LogDirError where there is none."""
    if not (known := lives(folder)):
        because = "no workers were started there"
        raise LogDirError(f"no logs in {folder}", because=because, hint=which_log_dir(folder))
    if incarnation is not None and incarnation not in known:
        because = f"it has {', '.join(map(str, known))}"
        hint = f"--incarnation={known[-1]}"
        raise LogDirError(f"no incarnation {incarnation} in {folder}", because=because, hint=hint)
    wanted = known if incarnation is None else [incarnation]
    there = [log for life in wanted for log in logs_of(folder, life)]
    missing = set(ranks) - {log.rank for log in there}
    if missing:
        has = sorted({log.rank for log in there})
        because = f"there are those of {rank_names(has)}" if has else "there is none of any rank"
        hint = f"--rank={has[0]}" if has else "faultrun status"
        raise LogDirError(f"no log of rank {min(missing)} in {folder}", because=because, hint=hint)
    return [log for log in there if not ranks or log.rank in ranks]


def _show(folder: Path, chosen: list[WorkerLog], count: int | None, printer: "_Printer") -> None:
    """All of it, or the last lines, as it stands."""
    marks, journal = LifeMarks(), JournalFollower(folder / FILE_NAME)
    for line in journal.new_lines():
        marks.take(line)
    streams = [(log.incarnation, whole(log)) for log in chosen]
    if count is not None:
        names = dict.fromkeys((log.rank, log.path.name) for log in chosen)
        of_name = [[log for log in chosen if (log.rank, log.path.name) == name] for name in names]
        streams = [pair for one in of_name for pair in last(one, count)]
    for life in sorted({life for life, _ in streams}):
        printer.mark(marks.mark(life), life)
        printer.print(in_order(lines for one, lines in streams if one == life))
    if marks.ended and any(life == lives(folder)[-1] for life, _ in streams):
        printer.mark(marks.ended, lives(folder)[-1])


class _Following:
    """The newest life, and those that come after it, until the run has ended or no supervisor lives."""

    def __init__(self, folder: Path, ranks: tuple[int, ...], printer: "_Printer") -> None:
        self._folder, self._ranks, self._printer = folder, ranks, printer
        self._marks = LifeMarks()
        self._journal = JournalFollower(folder / FILE_NAME)
        self._life = -1
        self._growing: list[GrowingLog] = []

    def run(self, count: int) -> None:
        """Show the last ``count`` lines of each log, and all that comes."""
        looks = 0
        while True:
            for line in self._journal.new_lines():
                self._marks.take(line)
            ended, gone = self._marks.ended, looks % _ANYBODY_EVERY == 0 and self._nobody_left()
            shown = self._look(count)
            if ended or gone:
                self._printer.print(in_order(one.last_lines() for one in self._growing))
                self._printer.mark(
                    ended or "cut off: its supervisor is gone; the same command goes on", self._life
                )
                return
            looks += 1
            if not shown:
                time.sleep(_LOOK_S)

    def _look(self, count: int) -> bool:
        """Whether there was anything new."""
        newest = max(lives(self._folder), default=-1)
        shown = self._printer.print(in_order([one.new_lines() for one in self._growing]))
        if newest == self._life or not logs_of(self._folder, newest):
            return shown
        self._printer.print(in_order(one.last_lines() for one in self._growing))
        first = self._life < 0
        self._life = newest
        self._printer.mark(self._marks.mark(newest), newest)
        found = logs_of(self._folder, newest, self._ranks)
        self._growing = [GrowingLog(log, begin_of_last(log.path, count)[0] if first else 0) for log in found]
        return True

    def _nobody_left(self) -> bool:
        record = read_record(self._folder)
        return who_supervises(self._folder, record, ended=bool(self._marks.ended)) is Supervised.GONE


class _Printer:
    """On stdout, in words or as JSON. Lines of one rank alone stand as they were printed."""

    def __init__(self, *, as_json: bool, several: bool) -> None:
        self._as_json, self._several = as_json, several
        self._colours = has_colours(os.environ, is_terminal=is_terminal(_STDOUT))

    def mark(self, text: str, incarnation: int) -> None:
        """A line between the logs."""
        text = printable(text)
        if self._as_json:
            self._write(json.dumps({"incarnation": incarnation, "mark": text}).encode())
        else:
            line = f"==> {text} <=="
            shown = painted(line, Tone.GOOD) if self._colours else line
            self._write(shown.encode(errors="backslashreplace"))
        sys.stdout.buffer.flush()

    def print(self, lines: Iterable[OutputLine]) -> bool:
        """Lines of logs, which obey no words of a worker; whether there were any."""
        some = False
        for line in lines:
            some = True
            self._write(self._shaped(line))
        if some:
            sys.stdout.buffer.flush()
        return some

    def _shaped(self, line: OutputLine) -> bytes:
        if self._as_json:
            log, text = line.log, last_written(line.text).decode(errors="replace")
            where = {"incarnation": log.incarnation, "rank": log.rank, "file": log.path.name}
            return json.dumps({**where, "at": line.at or None, "text": text}).encode()
        said = console_output(last_written(line.text))
        if b"\x1b[" in said:
            said += b"\x1b[0m"
        return prefix_of(line.log.rank).encode() + said if self._several else said

    def _write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data + b"\n")
