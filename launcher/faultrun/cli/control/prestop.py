"""The verb ``prestop``; see ``cli/control/stop.py``."""

from faultrun.cli.control.stop import prestop

__all__ = ["prestop"]
