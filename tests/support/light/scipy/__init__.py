"""For SciPy, which MindSpore imports for a metric, and transformers for a loss; nobody here calls it."""

from typing import NoReturn


def __getattr__(name: str) -> object:
    """Whatever is imported is there, and cannot be called."""
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"the examples do without {name} of SciPy")

    return missing
