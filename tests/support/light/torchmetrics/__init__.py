"""What Lightning needs of torchmetrics, from its own files: all of it would import scipy and transformers."""

import logging
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

_OWN = Path(__file__).resolve().parents[1]
_real = PathFinder.find_spec("torchmetrics", [entry for entry in sys.path if Path(entry).resolve() != _OWN])
if _real is None or _real.submodule_search_locations is None:
    raise ModuleNotFoundError("No module named 'torchmetrics'", name="torchmetrics")
__path__ = list(_real.submodule_search_locations)
_logger = logging.getLogger(__name__)  # its own files ask for it
__version__ = import_module("torchmetrics.__about__").__version__
vars(import_module("torchmetrics.utilities.imports"))["_MATPLOTLIB_AVAILABLE"] = False
import_module("torchmetrics.utilities")
Metric = import_module("torchmetrics.metric").Metric
MetricCollection = import_module("torchmetrics.collections").MetricCollection
