"""Another launcher as SCRIPT, or in a shell script that is SCRIPT: what to write instead.

It would start workers of its own in each of ours, which are not seen from here.
"""

import re
import shlex
from collections.abc import Sequence

from faultrun.errors import UsageError
from faultrun.frameworks.program_files import shell_texts

_SAME_OPTIONS = ("torchrun", "msrun")
"""Their options are ours."""

_UNREAD = ("ft_launcher", "dlrover-run")
_RUNS_A_FILE = re.compile(r"\.py$|(?:^|/)python[\d.]*$")
_COMMAND = r"(?:^|[;&|(]|\b(?:do|then|else|exec|nohup|time)\b)[ \t]*(?:\w+=\S*[ \t]+)*"
_STARTS = re.compile(
    rf"(?m){_COMMAND}(?:(torchrun|msrun|accelerate[ \t]+launch|deepspeed|mpirun|mpiexec)[ \t]"
    r"|[\w./${}\"-]+(?:[ \t]-\w+)*[ \t]-m[ \t]+(torch\.distributed\.(?:run|launch))\b)"
)
"""Where a command may begin, and a name that would start workers there."""


def other_launcher(words: Sequence[str], *, module: bool) -> str:
    """A word about the launcher that ``words`` start; "" where they start none.

    ``module``: the first one is the name of a module (``-m``).
    """
    name, rest = _named(words, module=module)
    if name in _SAME_OPTIONS:
        return _instead(name, shlex.join(["faultrun", *rest]))
    if name == "faultrun":
        return ""
    if name or words[0] in _UNREAD:
        return _instead(name or words[0], _line(words))
    for where, text in shell_texts(words):
        if (found := _STARTS.search(text)) is not None:
            inner = " ".join((found[1] or found[2]).split())
            return f"{where} starts {inner}, whose workers faultrun cannot see: write faultrun in its place"
    return ""


def _named(words: Sequence[str], *, module: bool) -> tuple[str, tuple[str, ...]]:
    """The launcher that is started, and what is behind it."""
    if not module and _RUNS_A_FILE.search(words[0]) and "-m" not in words:
        return "", ()
    from faultrun.adopt.launchers import MODULE_LAUNCHERS, named_launcher

    return (MODULE_LAUNCHERS.get(words[0], ""), tuple(words[1:])) if module else named_launcher(words)


def _line(words: Sequence[str]) -> str:
    """The command that does the same, as far as the launcher's own words tell."""
    from faultrun.adopt.launchers import read_launch

    try:
        launch = read_launch(words, lambda rest: ({}, tuple(rest)))
    except UsageError:
        return "faultrun SCRIPT"
    counted = [f"--{one.name}={one.values[-1]}" for one in launch.options if one.name == "worker_num"]
    script = [*(["-m"] if launch.module else []), *launch.program]
    return shlex.join(["faultrun", *counted, *script])


def _instead(name: str, line: str) -> str:
    return f"{name} would start its own workers in each worker; give faultrun in its place: {line}"
