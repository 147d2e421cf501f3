"""Judges what is around a run: clock, window, ports, frameworks, devices, rank table, variables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from faultrun.cli.doctor.check import Check, fail, ok, warn
from faultrun.model.spec import TERMINATION_VARIABLE, Windows
from faultrun.platforms.host import Process
from faultrun.platforms.local import Accelerators

_FIRST_SANE_S = 1_735_689_600.0  # 2025-01-01
_LAST_SANE_S = 4_102_444_800.0  # 2100-01-01
_STEP_S = 0.5
_KUBERNETES = "KUBERNETES_SERVICE_HOST"
FRAMEWORKS = (
    "mindspore",
    "mindspore-ascend",
    "mindspore-gpu",
    "torch",
    "torch-npu",
    "tensorflow",
    "tensorflow-cpu",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Both clocks at one moment, in seconds."""

    wall_s: float
    monotonic_s: float


def clock_check(first: Clocks, last: Clocks) -> Check:
    """The wall clock is sane, and went as far as the monotonic one while we looked."""
    if not _FIRST_SANE_S < last.wall_s < _LAST_SANE_S:
        return warn("clock", f"the wall clock stands at {last.wall_s:.0f} s since 1970", "set it by NTP")
    drift_s = (last.wall_s - first.wall_s) - (last.monotonic_s - first.monotonic_s)
    if abs(drift_s) > _STEP_S:
        return warn(
            "clock",
            f"the wall clock jumped by {drift_s:+.1f} s while we looked",
            "windows are counted by the monotonic clock; let NTP slew instead of stepping",
        )
    return ok("clock", "wall and monotonic clock agree")


def window_check(windows: Windows, environ: Mapping[str, str]) -> Check:
    """How long a stop may take, and who says so."""
    text = f"{windows.stop_grace_s:g} s to save when stopped ({windows.stop_grace_source})"
    told = windows.stop_grace_source != Windows().stop_grace_source
    if _KUBERNETES in environ and not told:
        return warn(
            "window",
            text,
            f"{TERMINATION_VARIABLE}: the pod's terminationGracePeriodSeconds; faultrun lint says where",
        )
    return ok("window", text)


def port_checks(
    holders: Mapping[int, Process | None], free: Mapping[int, bool], fresh: int | None
) -> Iterator[Check]:
    """A free port for workers to meet, and the ports that frameworks take by habit."""
    if fresh is None:
        yield fail("ports", "no free port for workers to meet on 127.0.0.1", "ss -ltnp shows who holds them")
        return
    taken = [port for port, is_free in free.items() if not is_free]
    if not taken:
        yield ok("ports", f"{fresh} is free to meet on, and so are {' and '.join(map(str, free))}")
        return
    names = (f"{port} by {_holder(holders.get(port))}" for port in taken)
    yield warn(
        "ports",
        f"taken: {', '.join(names)}",
        "faultrun takes another one, unless --fixed_port: then --master_port=N",
    )


def framework_check(found: Mapping[str, str]) -> Check:
    """The frameworks that are installed for this Python."""
    if not found:
        return warn(
            "frameworks",
            "neither MindSpore nor torch nor TensorFlow for this Python",
            "run faultrun by the Python that trains: python -m faultrun",
        )
    return ok("frameworks", ", ".join(f"{name} {version}" for name, version in found.items()))


def device_check(files: tuple[str, ...], visible: Accelerators | None) -> Check:
    """Accelerators: those that there are, and those that the environment names."""
    kinds = {name.rstrip("0123456789") for name in files}
    text = f"{len(files)} ({', '.join(sorted(kinds))})" if files else "no accelerator"
    if visible is None:
        return ok("devices", text)
    if visible.count > len(files):
        return warn(
            "devices",
            f"{text}, and {visible.source} names {visible.count}",
            "request them in the manifest, and let the device plug-in set the variable",
        )
    return ok("devices", f"{text}; {visible.source}")


def rank_table_check(path: str, refused: str, devices: int) -> Check:
    """The rank table that RANK_TABLE_FILE names."""
    if refused:
        return warn("rank table", f"{path}: {refused}", "the platform writes it once all pods are placed")
    return ok("rank table", f"{path}: {devices} devices")


def termination_check(path: str, exists: bool, writable: bool) -> Check:
    """The file that Kubernetes reads the reason of an end from."""
    if not exists:
        return ok("termination log", f"no {path}; the reason goes to stderr only")
    if writable:
        return ok("termination log", path)
    return warn(
        "termination log", f"{path} cannot be written", "terminationMessagePath, or the user of the container"
    )


def variable_checks(notes: tuple[str, ...], refused: tuple[str, str, str] | None) -> Iterator[Check]:
    """FAULTRUN_ variables: misspelled ones, and a value that a run would refuse."""
    for note in notes:
        name, _, hint = note.partition(" has no effect here: ")
        yield warn("variables", f"{name} has no effect", hint)
    if refused is not None:
        what, because, hint = refused
        yield fail("variables", f"{what}: {because}", hint)


def _holder(process: Process | None) -> str:
    return f"{process.name} (pid {process.pid})" if process else "a process that cannot be seen"
