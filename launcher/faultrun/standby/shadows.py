"""Modules of the program's own folder that a fresh worker would have imported in place of others.

Python looks into the program's folder first. A ``token.py`` there means that
a fresh worker's ``import token``, and that of the framework, finds it; a
standby has imported the standard library's long before.
"""

import os
import sys

_NO_FILE = ("-m", "-c", "-", "")


def shadowed(before: frozenset[str]) -> list[str]:
    """Names that are in the program's folder and were imported from elsewhere since ``before``."""
    imported = {name.partition(".")[0] for name in sys.modules.keys() - before}
    folder = _folder()
    return sorted(name for name in imported & _modules_in(folder) if not _is_from(name, folder))


def _folder() -> str:
    program = sys.argv[0] if sys.argv else ""
    if program in _NO_FILE:
        return os.getcwd()  # what Python itself uses for -m
    return os.path.dirname(os.path.realpath(program)) or os.getcwd()


def _modules_in(folder: str) -> set[str]:
    names = set()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                stem, dot, ending = entry.name.partition(".")
                is_file = ending in ("py", "pyc") or ending.endswith("so")
                if is_file or (not dot and os.path.exists(f"{entry.path}/__init__.py")):
                    names.add(stem)
    except OSError:
        return set()
    return names


def _is_from(name: str, folder: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return os.path.realpath(file).startswith(f"{folder}{os.sep}")
