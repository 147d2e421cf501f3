"""MindSpore: imported, and nothing more.

A rehearsed training step would save another 0.25 s, but it starts MindSpore's
runtime, after which a program's own ``set_device`` and other settings are
refused ("The runtime has been initialized").
"""

import sys

from .package_files import Identity, identity


def make() -> "MindSporeRehearsal":
    """The rehearsal of MindSpore."""
    return MindSporeRehearsal()


class MindSporeRehearsal:
    """See ``Rehearsal``."""

    name = "mindspore"

    def __init__(self) -> None:
        self._files: Identity | None = None

    def load(self) -> None:
        """See ``Rehearsal``."""
        import mindspore
        import mindspore.communication
        import mindspore.dataset
        import mindspore.nn
        import mindspore.train

        self._files = identity(mindspore)

    def rehearse(self) -> str:
        """See ``Rehearsal``."""
        return ""

    def changed(self) -> str:
        """See ``Rehearsal``."""
        import mindspore

        return "" if identity(mindspore) == self._files else "MindSpore was changed on the disk"

    def reseed(self) -> None:
        """See ``Rehearsal``: initial weights are drawn with numpy's generator."""
        sys.modules["numpy"].random.seed()
