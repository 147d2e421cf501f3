"""The verb ``prestop``; see ``cli/stop.py``."""

from faultrun.cli.stop import prestop

__all__ = ["prestop"]
