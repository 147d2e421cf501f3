"""One writer at a time for a configuration, over all processes that ask; no litter beside it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from faultrun.errors import ConfigError
from faultrun.locks import Busy, held

WAIT_S = 10.0


@contextmanager
def locked(path: Path, *, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold ``path`` against other writers that ask. ConfigError when it stays held for ``wait_s``."""
    lock = path.with_name(f".{path.name}.faultrun.lock")
    with ExitStack() as taken:
        try:
            taken.enter_context(held(lock, wait_s=wait_s))
        except Busy as busy:
            raise ConfigError(
                f"{path} is being changed by somebody else",
                because=f"{busy.holder} has held {lock.name} for {wait_s:g} s",
                hint=f"fuser {lock}",
            ) from None
        yield
