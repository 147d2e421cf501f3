"""``faultrun doctor``: what is wrong with this machine, container or configuration, before a run."""

import json
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

import click

from faultrun.cli.console import answer
from faultrun.cli.doctor import container, surroundings
from faultrun.cli.doctor import storage as storage_checks
from faultrun.cli.doctor.check import Check, Status
from faultrun.cli.doctor.storage import Folder, Save
from faultrun.cli.doctor.surroundings import FRAMEWORKS, Clocks
from faultrun.cli.options.settings import Asked, Settings, collect
from faultrun.cli.resolve.supervision import resolve_windows
from faultrun.errors import FaultrunError
from faultrun.model.spec import Windows
from faultrun.platforms import cgroup, host, local, ports, storage

_FAILED = 1
_USUAL_PORTS = (8118, 29500)
_SAMPLE_BYTES = 32 << 20
_SAMPLE_S = 1.0
_ANSWER_S = 20.0
_TERMINATION_LOG = "/dev/termination-log"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON list of {check, status, what, fix}.")
@click.option("--log_dir", "--log-dir", metavar="DIR", help="The log_dir of the run to come.  [faultrun_log]")
@click.option(
    "--checkpoint_dir",
    "--checkpoint-dir",
    multiple=True,
    metavar="DIR",
    help="Where checkpoints will be; a small file is written there and taken away.  (repeatable)",
)
@click.option("--grace", metavar="TIME", help="As for the run to come.  [30s]")
@click.option(
    "--stop_grace", "--stop-grace", metavar="TIME", help="As for the run to come.  [the platform's, else 30s]"
)
def doctor(as_json: bool, checkpoint_dir: tuple[str, ...], **given: str | None) -> int:
    """Look at what a run needs; each line is ok, warn or fail, with what to do.

    FAULTRUN_ variables count, as for a run. Ends with 1 if a line says fail.
    """
    asked: dict[str, tuple[str, ...]] = {name: (text,) for name, text in given.items() if text is not None}
    if checkpoint_dir:
        asked["checkpoint_dir"] = checkpoint_dir
    checks = list(_checks(Asked(options=asked, words=())))
    if as_json:
        answer(json.dumps([_object(check) for check in checks], indent=2))
    else:
        width = max(len(check.check) for check in checks)
        for check in checks:
            answer(check.told(width))
    return _FAILED if any(check.status is Status.FAIL for check in checks) else 0


def _checks(asked: Asked) -> Iterator[Check]:
    began = _clocks()
    settings, windows, refused = _settings(asked)
    yield from container.limits_checks(cgroup.limits(), cgroup.memory_of_machine(), local.processor_count())
    yield container.shm_check(_room("/dev/shm"))
    devices = host.device_files()
    yield from container.ulimit_checks(host.ulimits(), len(devices))
    yield container.pid_1_check(host.process(1), os.getpid())
    yield container.parent_check(host.process(os.getppid()))
    yield container.kernel_check(host.missing_features(), platform.release())
    yield from _folders(settings, windows)
    yield surroundings.window_check(windows, os.environ)
    yield from _ports()
    yield surroundings.framework_check(host.versions(FRAMEWORKS))
    yield surroundings.device_check(devices, local.visible_accelerators(os.environ))
    yield from _files()
    yield from surroundings.variable_checks(settings.notes, refused)
    yield surroundings.clock_check(began, _clocks())


def _settings(asked: Asked) -> tuple[Settings, Windows, tuple[str, str, str] | None]:
    """What was asked for; a variable that a run would refuse becomes a check, an option of ours an error."""
    try:
        settings = collect(asked, os.environ)
        return settings, resolve_windows(settings, os.environ), None
    except FaultrunError as error:
        plain = collect(asked, {})
        return plain, resolve_windows(plain, {}), (error.what, error.because, error.hint)


def _folders(settings: Settings, windows: Windows) -> Iterator[Check]:
    yield from storage_checks.log_dir_checks(_folder(settings.log_dir))
    for path in settings.texts(Settings.checkpoint_dir):
        yield from storage_checks.checkpoint_dir_checks(_folder(path), _newest(path), windows)


def _folder(path: str) -> Folder:
    place = storage.nearest(Path(path))
    try:
        sample = storage.write_sample(place, most_bytes=_SAMPLE_BYTES, for_s=_SAMPLE_S, within_s=_ANSWER_S)
        refused = ""
    except OSError as error:
        sample, refused = None, error.strerror or str(error)
    shown = path if Path(path).exists() else str(place)
    return Folder(
        path=path, place=shown, room=_room(str(place)) if sample else None, sample=sample, refused=refused
    )


def _newest(path: str) -> Save | None:
    """The size of the newest checkpoint, over all its ranks; None where there is none."""
    from faultrun.checkpoints.catalog import Catalog
    from faultrun.core.candidate_groups import moments

    if not Path(path).is_dir():
        return None
    newest = next(iter(moments(Catalog((path,)).scan().entries)), None)
    if newest is None:
        return None
    return Save(size_bytes=sum(entry.size_bytes for entry in newest.entries), files=len(newest.entries))


def _ports() -> Iterator[Check]:
    free = {port: ports.is_free("127.0.0.1", port) for port in _USUAL_PORTS}
    holders = {port: host.listener(port) for port, is_free in free.items() if not is_free}
    try:
        fresh = ports.fresh_port("127.0.0.1", frozenset())
    except OSError:
        fresh = None
    yield from surroundings.port_checks(holders, free, fresh)


def _files() -> Iterator[Check]:
    table = os.environ.get("RANK_TABLE_FILE", "")
    if table:
        from faultrun.platforms.rank_table import read_rank_table

        try:
            found, refused = read_rank_table(table), ""
        except (OSError, ValueError) as error:
            found, refused = None, getattr(error, "strerror", None) or str(error)
        yield surroundings.rank_table_check(table, refused, found.world_size if found else 0)
    path = Path(_TERMINATION_LOG)
    yield surroundings.termination_check(str(path), path.exists(), os.access(path, os.W_OK))


def _room(path: str) -> storage.Room | None:
    try:
        return storage.room(Path(path))
    except OSError:
        return None


def _clocks() -> Clocks:
    return Clocks(wall_s=time.time(), monotonic_s=time.monotonic())


def _object(check: Check) -> dict[str, str]:
    return {"check": check.check, "status": check.status.value, "what": check.what, "fix": check.fix}
