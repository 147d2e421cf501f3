"""Where a standby waits: ``site`` runs this before Python opens the user's program.

A standby is executed with the very command line of its worker, and this folder first on ``PYTHONPATH``. When
``wait`` returns, Python goes on as if nothing had been: the program becomes ``__main__`` by Python's own
hands, with no frame of ours below it. For any other process, such as a child of a standby, this file only
steps aside.
"""

import importlib.util
import os
import sys

_PACKAGE = "faultrun_standby"
_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_BEFORE = frozenset(sys.modules)


def _wait() -> None:
    """Load the package beside this folder under a name of its own, have it wait, and forget it."""
    told = os.environ.pop("FAULTRUN_STANDBY_CHANNEL", "")
    ours, _, theirs = os.environ.get("PYTHONPATH", "").partition(os.pathsep)
    if theirs:
        os.environ["PYTHONPATH"] = theirs
    else:
        os.environ.pop("PYTHONPATH", None)
    while ours in sys.path:
        sys.path.remove(ours)
    sys.path_importer_cache.pop(ours, None)
    if not told:
        return
    found = importlib.util.spec_from_file_location(
        _PACKAGE, f"{_FOLDER}/__init__.py", submodule_search_locations=[_FOLDER]
    )
    if found is None or found.loader is None:
        os._exit(70)  # going on would run the user's program a second time
    package = importlib.util.module_from_spec(found)
    sys.modules[_PACKAGE] = package
    try:
        found.loader.exec_module(package)
        package.wait(told, _BEFORE)
    except BaseException:  # noqa: BLE001  whatever it is, the program must not run
        sys.excepthook(*sys.exc_info())
        os._exit(70)
    for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
        del sys.modules[name]


_wait()
del sys.modules[__name__]
# The user's own, if there is one; else the ImportError with this very name that ``site`` expects.
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
