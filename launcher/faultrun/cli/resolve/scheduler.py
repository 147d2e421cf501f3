"""``--ms_scheduler``: who serves the rendezvous of MindSpore's workers, ours or MindSpore's scheduler."""

import ipaddress
from collections.abc import Mapping

from faultrun.cli.options.settings import Settings
from faultrun.cli.resolve.process_context import Notes, Surroundings
from faultrun.model.spec import Command, Framework, MsScheduler, Rendezvous, Simulation
from faultrun.platforms.local import accelerators_of

_AUTO = "auto"
_KNOWN = (_AUTO, *(scheduler.value for scheduler in MsScheduler))


def resolve_scheduler(
    settings: Settings,
    around: Surroundings,
    notes: Notes,
    run: tuple[Framework, Command, Rendezvous, Simulation | None],
) -> MsScheduler:
    """What serves the first incarnation; UsageError (ConfigError) for a builtin that could never listen."""
    framework, command, meeting, simulation = run
    asked = settings.read("ms_scheduler", _one_of_known) or _AUTO
    if framework is not Framework.MINDSPORE or simulation is not None:
        notes.no_effect("ms_scheduler", "only MindSpore's workers look for a scheduler, and no dry run does")
        return MsScheduler.NATIVE
    if asked == MsScheduler.NATIVE.value:
        return MsScheduler.NATIVE
    from faultrun.frameworks.mindspore import PROVED, installed_version

    if asked == MsScheduler.BUILTIN.value:
        if not _loopback(meeting.master_addr):
            because = (
                f"the built-in scheduler listens on loopback only, and they meet at {meeting.master_addr}"
            )
            raise settings.refuse(
                "ms_scheduler", because, "--master_addr=127.0.0.1, or --ms_scheduler=native"
            )
        version = installed_version(command, around.python, around.import_path)
        if version not in PROVED:
            known = " ".join(PROVED)
            notes.add(
                f"the built-in scheduler is proved for MindSpore {known}, and this is {version or 'unknown'}"
            )
        return MsScheduler.BUILTIN
    if not _loopback(meeting.master_addr) or not _simple(around.environ):
        return MsScheduler.NATIVE
    proved = installed_version(command, around.python, around.import_path) in PROVED
    return MsScheduler.BUILTIN if proved else MsScheduler.NATIVE


def _one_of_known(text: str) -> str:
    if text not in _KNOWN:
        raise ValueError(f"{text!r} is none of {', '.join(_KNOWN)}")
    return text


def _loopback(address: str) -> bool:
    """IPv4 only: nobody has seen how MindSpore writes the other kind into its frames."""
    try:
        return ipaddress.IPv4Address(address).is_loopback
    except ValueError:
        return False


def _simple(environ: Mapping[str, str]) -> bool:
    """Whether the workers train on CPU, without MindSpore's parameter servers and own recovery."""
    devices = any(accelerators_of(kind, environ) is not None for kind in ("npu", "gpu"))
    servers = environ.get("MS_SERVER_NUM", "0") not in ("", "0")
    return not devices and not servers and environ.get("MS_ENABLE_RECOVERY", "0") != "1"
