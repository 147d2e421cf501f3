"""Property tests draw here as they do in ``tests/``."""

from support import property_examples

__all__ = ["property_examples"]
