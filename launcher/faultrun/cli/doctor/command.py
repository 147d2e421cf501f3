"""``faultrun doctor``: what is wrong with this machine, container or configuration, before a run."""

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import click
import psutil

from faultrun.cli.console import answer
from faultrun.cli.doctor import checks
from faultrun.cli.doctor.checks import Check, CheckStatus, NewestSave, ProbedFolder
from faultrun.cli.options.help.completion import folders
from faultrun.cli.options.settings import Asked, Settings, collect
from faultrun.cli.resolve.supervision import resolve_windows
from faultrun.cli.verbs import example
from faultrun.errors import FaultrunError
from faultrun.model.spec.output import Logs
from faultrun.model.spec.windows import Windows
from faultrun.platforms import cgroup, host, ports, storage, this_machine
from faultrun.platforms.device_health import DeviceHealth, ask, devices_to_ask

_USUAL_PORTS = (8118, 29500)
_SAMPLE_BYTES = 32 << 20
_SAMPLE_S, _ANSWER_S = 1.0, 20.0

_WITHIN_S = 25.0
"""Less than a run gives its ``--health_check``."""
_LOOK = {
    "cpu": "dmesg: the kernel tells of memory and machine checks",
    "gpu": "nvidia-smi -q -d ECC,ROW_REMAPPER; the torch of this Python has to see it",
    "npu": "npu-smi info -t health; the torch and torch_npu of this Python have to see it",
}


@click.command(
    epilog=example(
        "faultrun doctor", "faultrun doctor --checkpoint_dir=ckpt --grace=2m", "faultrun doctor --device"
    )
)
@click.option(
    "--device",
    "devices_alone",
    is_flag=True,
    help="Check only the devices (that of FAULTRUN_SLOT, else all): write, read and compute; 25 s at most.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON list of {check, status, what, fix}.")
@click.option(
    "--log_dir", metavar="DIR", shell_complete=folders, help="The log_dir of the run to come.  [faultrun_log]"
)
@click.option(
    "--checkpoint_dir",
    multiple=True,
    metavar="DIR",
    shell_complete=folders,
    help="Where checkpoints will be; a small file is written there and taken away.  (repeatable)",
)
@click.option("--grace", metavar="TIME", help="As for the run to come.  [30s]")
@click.option("--stop_grace", metavar="TIME", help="As for the run to come.  [the platform's, else 30s]")
def doctor(devices_alone: bool, as_json: bool, checkpoint_dir: tuple[str, ...], **given: str | None) -> int:
    """Look at what a run needs; each line is ok, warn or fail, with what to do.

    FAULTRUN_ variables count, as for a run. Ends with 1 if a line says fail.
    """
    asked: dict[str, tuple[str, ...]] = {name: (text,) for name, text in given.items() if text is not None}
    if checkpoint_dir:
        asked["checkpoint_dir"] = checkpoint_dir
    found = list(devices_checks(os.environ) if devices_alone else _checks(Asked(options=asked, words=())))
    if as_json:
        answer(json.dumps([asdict(check) for check in found], indent=2))
    else:
        width = max(len(check.check) for check in found)
        for check in found:
            answer(check.told(width))
    return int(any(check.status is CheckStatus.FAIL for check in found))


def _checks(asked: Asked) -> Iterator[Check]:
    began_s = time.time() - time.monotonic()
    settings, windows, refused = _settings(asked)
    devices = this_machine.device_files()
    total_bytes = psutil.virtual_memory().total
    yield from checks.limits_checks(cgroup.limits(), total_bytes, this_machine.processor_count())
    yield checks.shm_check(_room("/dev/shm"))
    yield from checks.ulimit_checks(host.ulimits(), len(devices))
    yield checks.pid_1_check(host.process(1), os.getpid())
    yield checks.parent_check(host.process(os.getppid()))
    yield checks.kernel_check(host.missing_features(), platform.release())
    yield from checks.log_dir_checks(_folder(settings.log_dir))
    for path in settings.texts(Settings.checkpoint_dir):
        yield from checks.checkpoint_dir_checks(_folder(path), _newest(path), windows)
    yield checks.window_check(windows, os.environ)
    yield _ports()
    yield checks.framework_check(host.versions(checks.FRAMEWORKS))
    yield checks.device_check(devices, this_machine.visible_accelerators(os.environ))
    if table := os.environ.get("RANK_TABLE_FILE", ""):
        yield _rank_table(table)
    log = Path(Logs().termination_log)
    yield checks.termination_check(str(log), log.exists(), os.access(log, os.W_OK))
    yield _etcd()
    yield from checks.variable_checks(settings.notes, refused)
    yield checks.clock_check(time.time(), time.time() - time.monotonic() - began_s)


def _etcd() -> Check:
    """Only the first of several nodes needs one, where no other is named."""
    from faultrun.nodes.etcd.own_server import NoEtcd, find_etcd

    try:
        return Check("etcd", CheckStatus.OK, f"{find_etcd()}, for runs of several nodes")
    except NoEtcd as error:
        return Check("etcd", CheckStatus.OK, f"none, so no run of several nodes can begin here: {error.hint}")


def _settings(asked: Asked) -> tuple[Settings, Windows, tuple[str, str, str] | None]:
    """What was asked for; a variable that a run would refuse becomes a check, an option of ours an error."""
    try:
        settings = collect(asked, os.environ)
        return settings, resolve_windows(settings, os.environ), None
    except FaultrunError as error:
        plain = collect(asked, {})
        return plain, resolve_windows(plain, {}), (error.what, error.because, error.hint)


def _folder(path: str) -> ProbedFolder:
    place = storage.nearest(Path(path))
    shown = path if Path(path).exists() else str(place)
    try:
        sample = storage.write_sample(place, most_bytes=_SAMPLE_BYTES, for_s=_SAMPLE_S, within_s=_ANSWER_S)
    except OSError as error:
        refused = error.strerror or str(error)
        return ProbedFolder(path=path, place=shown, room=None, sample=None, refused=refused)
    return ProbedFolder(path=path, place=shown, room=_room(str(place)), sample=sample, refused="")


def _newest(path: str) -> NewestSave | None:
    """The size of the newest checkpoint, over all its ranks; None where there is none."""
    from faultrun.checkpoints.catalog import Catalog
    from faultrun.core.recovery.candidate_order import moments

    groups = moments(Catalog((path,)).scan().entries) if Path(path).is_dir() else ()
    for newest in groups:
        size_bytes = sum(entry.size_bytes for entry in newest.entries)
        return NewestSave(size_bytes=size_bytes, files=len(newest.entries))
    return None


def _ports() -> Check:
    taken = [port for port in _USUAL_PORTS if not ports.is_free("127.0.0.1", port)]
    try:
        fresh = ports.fresh_port("127.0.0.1", frozenset())
    except OSError:
        fresh = None
    return checks.port_check({port: host.listener(port) for port in taken}, _USUAL_PORTS, fresh)


def _rank_table(path: str) -> Check:
    from faultrun.platforms.rank_table.rank_table import read_rank_table

    try:
        return checks.rank_table_check(path, "", read_rank_table(path).world_size)
    except (OSError, ValueError) as error:
        return checks.rank_table_check(path, getattr(error, "strerror", None) or str(error), 0)


def _room(path: str) -> storage.Room | None:
    try:
        return storage.room(Path(path))
    except OSError:
        return None


def devices_checks(environ: Mapping[str, str]) -> Iterator[Check]:
    """A line for each device. All are asked at once, so all take no longer than one."""
    asked = devices_to_ask(environ)
    with ThreadPoolExecutor(max(1, len(asked))) as askers:
        yield from askers.map(lambda one: health_check(ask(one, environ, _WITHIN_S)), asked)


def health_check(answered: DeviceHealth) -> Check:
    """What a device that was asked to remember and to compute has answered."""
    device = answered.device
    if answered.well:
        return Check("device", CheckStatus.OK, f"{device.name} is well: {answered.said}")
    what = f"{device.name} is not well: {answered.said}"
    return Check("device", CheckStatus.FAIL, what, _LOOK[device.kind])
