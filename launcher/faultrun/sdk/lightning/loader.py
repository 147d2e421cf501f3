"""Lightning's training data, opened at the place where training goes on.

Lightning 2.6 opens a loader that is no ``StatefulDataLoader`` at its beginning, whatever batch a checkpoint
was taken at: it trains the first batches of the epoch again, and as many at its end never. The loader that
stands in ``CombinedLoader``'s place here asks where to open, and says so before every batch.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, Protocol

from faultrun.errors import FaultrunError
from faultrun.sdk.torch.loader.loader_position import opened, opened_after


class Opener(Protocol):
    """Who is asked, in the main thread."""

    def opening(self, loaders: list[Any]) -> int:
        """An epoch's batches are about to be opened; so many of them are done already."""

    def opened(self) -> None:
        """They are open."""

    def fetching(self) -> None:
        """Whatever belongs to the last step is over; the next batch is fetched now."""


def place_loaders(trainer: Any, opener: Opener) -> None:
    """Have ``trainer``'s next fit open its training data where ``opener`` says."""
    fit_loop = trainer.fit_loop
    package = type(fit_loop).__module__.partition(".loops")[0]
    combined = import_module(f"{package}.utilities.combined_loader").CombinedLoader
    source = getattr(fit_loop, "_data_source", None)
    if source is None or not callable(getattr(source, "dataloader", None)):
        raise FaultrunError(
            "sdk.lightning.DyingGasp cannot tell this Trainer where its data go on",
            because=f"{package} {import_module(package).__version__} keeps its data elsewhere than 2.6 does",
            hint="install lightning 2.6, or leave DyingGasp out",
        )
    kind = _placed(combined)

    def dataloader() -> Any:
        given = type(source).dataloader(source)
        if isinstance(given, combined):
            return kind(opener, given.iterables, given._mode)
        return kind(opener, given, "max_size_cycle")

    source.dataloader = dataloader


def is_stateful(loader: Any) -> bool:
    """Whether it keeps its place itself, as torchdata's ``StatefulDataLoader`` does."""
    return callable(getattr(loader, "state_dict", None)) and callable(
        getattr(loader, "load_state_dict", None)
    )


def _placed(combined: type) -> Any:
    """``CombinedLoader`` of the package in use, which asks."""

    class PlacedLoader(combined):  # type: ignore[misc]  # Lightning's, which is imported late
        _flattened: list[Any]

        def __init__(self, opener: Opener, iterables: Any, mode: str) -> None:
            super().__init__(iterables, mode)
            self._opener = opener

        def __iter__(self) -> Any:
            loaders = self._flattened
            done = self._opener.opening(loaders)
            cycles = "cycle" in self._mode
            self._flattened = [_Opened(one, done, cycles) for one in loaders]
            try:
                super().__iter__()
            finally:
                self._flattened = loaders
            self._iterator.iterables = loaders  # a short one begins again from its beginning
            self._iterator._idx = done
            self._opener.opened()
            return self

        def __next__(self) -> Any:
            self._opener.fetching()
            return super().__next__()

    return PlacedLoader


class _Opened:
    """Is opened after its first ``done`` batches; a shorter one has begun again by then, if it ``cycles``."""

    def __init__(self, loader: Any, done: int, cycles: bool) -> None:
        self._loader = loader
        length = sized(loader) if cycles else None
        self._done = done % length if length else done

    def __iter__(self) -> Iterator[Any]:
        return opened_after(self._loader, self._done) if self._done else opened(self._loader)


def sized(loader: Any) -> int | None:
    """How many batches it has; None where it does not say."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None
