"""``faultrun.yaml`` in the folder of SCRIPT: the options of a run for which the user typed no ``--config``.

Only that folder is looked into, never one above it or the working directory: who may write beside a script
may as well write the script.
"""

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from faultrun.errors import ConfigError

CONFIG_NAME = "faultrun.yaml"
NO_CONFIG = "none"

_STARTS_ANOTHER = re.compile(r"(python(\d(\.\d+)?)?|bash|sh|dash|zsh)$")
_ROOT = 0


def config_beside(words: Sequence[str], *, module: bool) -> str:
    """The path of SCRIPT's own ``faultrun.yaml``; "" where there is none. ``module``: SCRIPT is a module.

    ConfigError where the name is taken by something that is no file, by a link to nothing, or by a file of
    another program's.
    """
    if (script := script_file(words, module=module)) is None:
        return ""
    path = script.parent / CONFIG_NAME
    try:
        found, owner = path.stat(), script.stat().st_uid
    except OSError as error:
        if not os.path.lexists(path):
            return ""
        why = "it is a link to nothing" if path.is_symlink() else "it cannot be looked at"
        raise _refused(path, f"{why}: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise _refused(path, "it is no regular file")
    if found.st_uid not in (os.geteuid(), owner, _ROOT):
        raise _refused(path, f"it belongs to user {found.st_uid}, and {script.name} to user {owner}")
    return str(path)


def script_file(words: Sequence[str], *, module: bool) -> Path | None:
    """The file that ``words`` run: SCRIPT itself, or what an interpreter is given; None if it is not seen."""
    if not words:
        return None
    if module or words[1:2] == ("-m",):
        from faultrun.frameworks.detect import find_module

        return find_module(words[0] if module else "".join(words[2:3]), (str(Path.cwd()),))
    interpreted = _STARTS_ANOTHER.match(words[0]) is not None
    candidates = [word for word in words[1:] if not word.startswith("-")][:1] if interpreted else words[:1]
    return next((Path(word) for word in candidates if os.path.isfile(word)), None)  # noqa: PTH113  never raises


def _refused(path: Path, because: str) -> ConfigError:
    hint = f"move it away, or --config={NO_CONFIG} to run without it"
    return ConfigError(f"{path} cannot be used", because=because, hint=hint)
