"""Whatever is imported from ``scipy.ndimage`` is there, and cannot be called."""

from scipy import __getattr__  # type: ignore[import-untyped,unused-ignore]  # noqa: F401
