"""Another launcher as SCRIPT, or in a shell script that is SCRIPT: what to write instead.

It would start workers of its own in each of ours, which nobody here sees.
"""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from faultrun.frameworks.program_files import shell_texts

_SAME_OPTIONS = ("torchrun", "msrun")
"""Their options are ours."""

_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate launch",
    "deepspeed.launcher.runner": "deepspeed",
}
_OTHERS = ("accelerate launch", "deepspeed", "mpirun", "mpiexec", "srun", "ft_launcher", "dlrover-run")
_COUNTS = r"(?:--num_processes|--num-processes|--num_gpus|--nproc[-_]per[-_]node|-np|-n|--ntasks)[= ]+(\d+)"
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
    if name:
        count = re.search(_COUNTS, " ".join(rest))
        number = f" --worker_num={count[1]}" if count else ""
        return _instead(name, f"faultrun{number} {shlex.join(_script(rest)) or 'SCRIPT'}")
    for where, text in shell_texts(words):
        found = _STARTS.search(text)
        if found is not None:
            inner = " ".join((found[1] or found[2]).split())
            return f"{where} starts {inner}, whose workers faultrun cannot see: write faultrun in its place"
    return ""


def _named(words: Sequence[str], *, module: bool) -> tuple[str, Sequence[str]]:
    first = Path(words[0]).name
    if module:
        return _MODULES.get(words[0], ""), words[1:]
    if re.fullmatch(r"python(\d(\.\d+)?)?", first) and "-m" in words[1:-1]:
        at = words.index("-m")
        if not all(word.startswith("-") for word in words[1:at]):
            return "", ()
        return _MODULES.get(words[at + 1], ""), words[at + 2 :]
    if first == "accelerate":
        return ("accelerate launch", words[2:]) if words[1:2] == ("launch",) else ("", ())
    return (first, words[1:]) if first in (*_SAME_OPTIONS, *_OTHERS) else ("", ())


def _script(rest: Sequence[str]) -> Sequence[str]:
    """What the launcher runs: from the first Python file on, or from ``-m``."""
    for at, word in enumerate(rest):
        if word.endswith(".py") or word in ("-m", "--module"):
            return rest[at:]
    return ()


def _instead(name: str, line: str) -> str:
    return f"{name} starts workers of its own in each worker of faultrun, which takes its place: {line}"
