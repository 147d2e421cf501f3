"""faultrun: a launcher that keeps training jobs training."""

__version__ = "0.1.0"
