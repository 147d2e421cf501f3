"""Where a rank begins, and a standby waits: ``site`` runs this before Python opens the user's program.

Every rank is executed with this folder first on ``PYTHONPATH``. The Python that it is, or starts first,
outlives from here on what platforms send to every process; its children have the user's ``PYTHONPATH``. A
standby is executed with the very command line of its worker. When ``wait`` returns, Python goes on as if
nothing had been: the program becomes ``__main__`` by Python's own hands, with no frame of ours below it.
"""

import importlib.util
import os
import sys
from types import ModuleType

_PACKAGE = "faultrun_standby"
_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_BEFORE = frozenset(sys.modules)


def _wait() -> None:
    """Load the package beside this folder under a name of its own, have it wait, and forget it."""
    told = os.environ.pop("FAULTRUN_STANDBY_CHANNEL", "")
    ours = os.path.dirname(os.path.abspath(__file__))
    theirs = [
        one for one in os.environ.pop("PYTHONPATH", "").split(os.pathsep) if os.path.abspath(one) != ours
    ]
    if theirs:
        os.environ["PYTHONPATH"] = os.pathsep.join(theirs)
    sys.path[:] = [one for one in sys.path if os.path.abspath(one) != ours]
    sys.path_importer_cache.pop(ours, None)
    if told != "probe":
        _executed("faultrun_signals", f"{_FOLDER}/../sdk/worker/stop_signals.py").outlive()
    if not told:
        return
    try:
        _executed(_PACKAGE, f"{_FOLDER}/__init__.py", [_FOLDER]).wait(told, _BEFORE)
    except BaseException:  # noqa: BLE001  whatever it is, the program must not run
        sys.excepthook(*sys.exc_info())
        os._exit(70)  # going on would run the user's program a second time
    for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
        del sys.modules[name]


def _executed(name: str, path: str, folders: "list[str] | None" = None) -> ModuleType:
    """The module of that file, which its own modules import by ``name`` where ``folders`` has them."""
    found = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folders)
    assert found is not None and found.loader is not None, path
    module = importlib.util.module_from_spec(found)
    if folders:
        sys.modules[name] = module
    found.loader.exec_module(module)
    return module


_wait()
del sys.modules[__name__]
# The user's own, if there is one; else the ImportError with this very name that ``site`` expects.
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
