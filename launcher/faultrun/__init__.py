"""faultrun: a launcher that keeps training jobs training."""

__version__ = "0.2.0"
