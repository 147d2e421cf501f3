"""A rehearsal as it was asked for: from the options of a run to its outcome, and the files compared."""

import os
import shutil
import sys
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultrun.adopt.launch import AdoptedOption, FoundLaunch
from faultrun.adopt.program import KnownProgram, NearbyFiles, read_program
from faultrun.adopt.proposal import propose, yaml_value
from faultrun.adopt.questions import loaded_by
from faultrun.checkpoints.registry import registry_for
from faultrun.cli.console import say
from faultrun.cli.options.config_beside_script import CONFIG_NAME, NO_CONFIG
from faultrun.cli.options.option import Takes
from faultrun.cli.options.settings import OPTIONS, Asked, Settings, collect_for_run
from faultrun.cli.resolve.spec import Resolved
from faultrun.errors import UsageError
from faultrun.model.observed.hang import HangSignal
from faultrun.rehearse.isolation.choose_isolation import InCopy, InView, Isolation
from faultrun.rehearse.isolation.file_digests import changed, marks_of, own_streams
from faultrun.rehearse.isolation.private_view import ASIDE
from faultrun.rehearse.outcome import RehearsalOutcome, Trial
from faultrun.rehearse.proposed_options import as_diff, wanted_options, with_options
from faultrun.rehearse.rehearsal import Rehearser, Request
from faultrun.workers.process import become_subreaper

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

_SHORTEST_WINDOW_S = 10.0
_SHARE_OF_A_WINDOW = 0.1
_REAP_S = 20.0
_TOLD_TO_NOBODY = dict.fromkeys(("webhook", "on_event", "metrics_port", "metrics_file"), "none")
_SET = {
    **_TOLD_TO_NOBODY,
    "join": "True",
    "live_line": "False",
    "report": "False",
    "worker_log_name": "worker",
    "max_restarts": "1000",
}
"""What a rehearsal decides: it must tell no outlet, and may restart as often as it makes faults."""
_LEFT_OUT = frozenset({"dry_run", "shutdown_timeout", "tail_worker_log", "tee", "redirects", *_SET})

_LABEL_WIDTH = 56


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The rehearsal's own options, by the names of their parameters."""

    minutes: float
    faults: str | None
    as_json: bool
    diff: bool
    scratch: str | None
    isolation: str


def every_trial(resolved: Resolved) -> tuple[Trial, ...]:
    """All that there are; the only rank is rank 0."""
    alone = resolved.spec.topology.world_size == 1
    return tuple(trial for trial in Trial if not (alone and trial is Trial.RANK))


def rehearsed(
    asked: Asked, resolved: Resolved, trials: tuple[Trial, ...], wishes: Wishes
) -> tuple[RehearsalOutcome, str]:
    """Play it, with the user's files digested before and after; and a diff with changes that would help."""
    total_s, began_s, spec = wishes.minutes * 60, time.monotonic(), resolved.spec
    window_s = max(_SHORTEST_WINDOW_S, _SHARE_OF_A_WINDOW * total_s)
    windows = spec.supervision.windows
    limits = {
        "grace": f"{min(windows.grace_s, window_s):g}s",
        "stop_grace": f"{min(windows.stop_grace_s, window_s):g}s",
    }

    def command(log_dir: Path, hang_s: float | None) -> tuple[str, ...]:
        return _words(asked, log_dir, {**limits, **_hang(asked, hang_s)})

    become_subreaper()
    place = _scratch(wishes.scratch)
    places = _places(resolved)
    with closing(TimeBar(total_s)) as bar:
        bar.doing("reading your files, to know afterwards that they are as they were")
        ours = own_streams()
        before = marks_of(places, ours)
        request = Request(
            command=command,
            handed_over=spec.recovery.handed_over,
            hang_by_log=spec.supervision.hang.signal is HangSignal.LOG,
            ranks=spec.topology.world_size,
            save_folders=tuple(str(Path(folder).absolute()) for folder in spec.recovery.checkpoint_dirs),
            registry=registry_for(spec.recovery),
            trials=trials,
            total_s=total_s,
            stop_s=windows.stop_grace_s + _REAP_S,
            step_pattern=spec.logs.step_pattern,
        )
        ways = _ways(resolved, wishes.isolation)
        rehearser = Rehearser(request=request, scratch=place, ways=ways, say=bar.doing, tick=bar.tick)
        try:
            tried = rehearser.rehearse()
        finally:
            _remove(place)
        bar.doing("reading your files again")
        different = changed(before, marks_of(places, ours))
    found = RehearsalOutcome(
        tried=tried,
        undisturbed=rehearser.part,
        minutes=wishes.minutes,
        took_s=time.monotonic() - began_s,
        left_out=tuple(trial for trial in every_trial(resolved) if trial not in trials),
        isolation=rehearser.isolation.words,
        watched=len(before),
        changed=different,
    )
    return found, proposed(asked, found)


def _words(asked: Asked, log_dir: Path, limits: dict[str, str]) -> tuple[str, ...]:
    """What a person would type to train so, but for what a rehearsal decides."""
    ours = {
        **_SET,
        "log_dir": str(log_dir),
        "termination_log": str(log_dir.with_name("termination-log")),
        **limits,
    }
    words = [sys.executable, "-m", "faultrun", "run"]
    for name, texts in asked.options.items():
        if name in _LEFT_OUT or name in ours:
            continue
        words += (
            [f"--{name}"] if OPTIONS[name].takes is Takes.NOTHING else [f"--{name}={one}" for one in texts]
        )
    words += [f"--{name}={text}" for name, text in ours.items()]
    return (*words, *asked.words)


def _hang(asked: Asked, hang_s: float | None) -> dict[str, str]:
    """A short limit for the rehearsal; a user who turned the watch off or gave a shorter one had a reason."""
    given = collect_for_run(asked, os.environ).hang_timeout
    if hang_s is None or (given is not None and (given == float("inf") or given <= hang_s)):
        return {}
    return {"hang_timeout": f"{hang_s:.3g}s"}


def _places(resolved: Resolved) -> tuple[str, ...]:
    """What must be as it was: what is named first, for only so many files are compared."""
    spec = resolved.spec
    words = [word.partition("=")[2] or word for word in spec.command.script_args]
    return (
        *spec.recovery.checkpoint_dirs,
        *(one.file for one in spec.recovery.rewrites),
        spec.logs.log_dir,
        *(word for word in words if "/" in word or Path(word).is_file()),
        ".",
    )


def _scratch(wanted: str | None) -> Path:
    parent = Path(wanted or tempfile.gettempdir()).absolute()
    try:
        return Path(tempfile.mkdtemp(prefix="faultrun-rehearsal-", dir=parent))
    except OSError as error:
        because = str(error.strerror or error)
        hint = f"--scratch=DIR, with room for some checkpoints ({Settings.log_dir.spelled} is not touched)"
        raise UsageError(f"nothing can be written to {parent}", because=because, hint=hint) from error


def _remove(place: Path) -> None:
    """What an overlay leaves is closed to all; it is ours all the same."""
    for folder in place.glob(f"scene_*/layer_*/{ASIDE}/*"):
        folder.chmod(0o700)
    shutil.rmtree(place, ignore_errors=True)


def _ways(resolved: Resolved, wanted: str) -> tuple[Isolation, ...]:
    """Those that are allowed, the best first."""
    spec = resolved.spec
    outputs = (
        *spec.recovery.checkpoint_dirs,
        *(str(Path(one.file).parent) for one in spec.recovery.rewrites),
    )
    view = InView(outputs)
    copy = InCopy(folder=Path.cwd(), command=spec.command.script_args, outputs=outputs)
    return {"auto": (view, copy), "view": (view,), "copy": (copy,)}[wanted]


class TimeBar:
    """Fills while the time passes; ``close`` ends its line. With NO_COLOR or no terminal there is no bar."""

    def __init__(self, total_s: float) -> None:
        self._begin_s = time.monotonic()
        self._total_s = total_s
        self._bar: ProgressBar[int] | None = None
        if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
            self._bar = click.progressbar(length=max(1, int(total_s)), file=sys.stderr, show_eta=False)

    def doing(self, text: str) -> None:
        """What is being done from now on."""
        if self._bar is None:
            say(f"rehearsal {time.monotonic() - self._begin_s:4.0f} s: {text}")
            return
        self._bar.label = text[:_LABEL_WIDTH].ljust(_LABEL_WIDTH)
        self._bar.render_progress()

    def tick(self) -> None:
        """Time has passed."""
        if self._bar is not None:
            passed_s = min(int(time.monotonic() - self._begin_s), int(self._total_s))
            self._bar.update(max(0, passed_s - self._bar.pos))

    def close(self) -> None:
        """Nothing follows."""
        if self._bar is not None:
            self._bar.render_finish()


def proposed(asked: Asked, found: RehearsalOutcome) -> str:
    """A diff from the working directory; empty where nothing is to be changed.

    What was typed wins over a file: for those options a line before the diff says what to type.
    """
    settings = collect_for_run(asked, os.environ)
    launch = FoundLaunch(launcher="faultrun", program=asked.words, module=settings.module)
    program = read_program(launch, NearbyFiles(root=Path.cwd(), beside=(Path.cwd(),)), os.environ)
    read = propose(launch, program, {}).options
    by_name = loaded_by(program)
    if by_name is not None and not any(one.name == "recipe" for one in read):
        read = (*read, replace(by_name, read=f"by its name: {by_name.read}"))
    options = wanted_options(found, read, str(Path.cwd()))
    typed = [one for one in options if one.name in asked.options]
    parts = [f"# type --{one.name}={value}  ({one.read})\n" for one in typed for value in one.values]
    if options := tuple(one for one in options if one not in typed):
        parts.append(_in_config(program, settings, options))
    return "".join(parts)


def _in_config(program: KnownProgram, settings: Settings, options: tuple[AdoptedOption, ...]) -> str:
    if (named := settings.config) and named != NO_CONFIG:
        path = Path(named)
    elif program.script is not None and named != NO_CONFIG:
        path = program.script.parent / CONFIG_NAME
    else:
        words = (f"--{one.name}={yaml_value(one.values, one.name)}" for one in options)
        return "".join(f"# type {word}\n" for word in words)
    before = None
    with suppress(FileNotFoundError):
        before = path.read_text(encoding="utf-8")
    return as_diff(os.path.relpath(path), before, with_options(before or "", options))
