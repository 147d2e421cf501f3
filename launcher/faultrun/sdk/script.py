"""A keeper for scripts without a framework helper: the script itself writes its state into a file."""

from collections.abc import Callable
from pathlib import Path

from faultrun.errors import FaultrunError
from faultrun.sdk.files import Saved, Shelf, Stamp, numbered
from faultrun.sdk.gate import Gate, patience
from faultrun.sdk.keeper import After, NotSaved, Order
from faultrun.sdk.preflight import preflight

Save = Callable[[str], object]
"""Writes the whole training state into the file of that name, which does not exist yet."""


class ScriptKeeper:
    """Calls ``save`` at consistent moments, in the helper thread.

    Until the script marks its updates (``updating``), only the inside of
    ``step`` is known to be consistent: the save happens there, while the
    main thread waits. FaultrunError: what it is given cannot be meant.
    """

    def __init__(self, save: Save, shelf: Shelf, name: str) -> None:
        if not callable(save) or not isinstance(name, str) or Path(name).name != name:
            raise FaultrunError(
                "faultrun.sdk cannot save this training",
                because=f"save is {save!r} and name {name!r}, not a function and the name of a file",
                hint='sdk.start(save=write_state, directory="ckpt", name="state.npz")',
            )
        self._save = save
        self._name = name
        self._shelf = shelf
        self._rank_directory = f"rank_{shelf.session.rank}"
        self._gate = Gate()
        self._marked = False
        self._step: int | None = None
        self._epoch: int | None = None
        self._last: Saved | None = None

    def preflight(self) -> None:
        """Try a tiny save. FaultrunError when nothing could ever be saved."""
        preflight(self._shelf, self._rank_directory)

    def begin(self) -> None:
        """The script starts to change its state."""
        self._marked = True
        self._gate.begin()

    def end(self) -> None:
        """It has changed it; the step may still have more to do."""
        self._gate.end()

    def stepped(self, step: int, epoch: int | None) -> None:
        """A step is complete."""

        def note() -> None:
            self._step, self._epoch = step, epoch

        self._gate.boundary(note)
        self._gate.yield_to_reader()  # the next update may begin before another thread gets a turn
        if not self._marked:
            self._gate.begin()

    def newest(self) -> int | None:
        """The step that was last completed."""
        return self._step

    def save(self, order: Order) -> Saved:
        """As ``Keeper.save``; the script's function runs while the main thread changes nothing."""

        def due() -> bool:
            return is_due(order, self._step)

        self._gate.hold(patience(order), lambda: False, due)
        try:
            return self._written()
        finally:
            if order.after is After.GO_ON:
                self._gate.release()

    def prune(self, newest: Saved) -> None:
        """As ``Keeper.prune``."""
        self._shelf.prune(newest)

    def stop(self) -> None:
        """As ``Keeper.stop``."""
        self._gate.stop()

    def unfinished(self) -> bool:
        """A script without a framework does not say when it is done."""
        return False

    def _written(self) -> Saved:
        if self._step is None:
            raise NotSaved("no step is finished: there is nothing to save")
        if self._last is not None and self._last.step == self._step and Path(self._last.path).exists():
            return self._last
        name = Path(self._name)
        place = self._shelf.folder.path / self._rank_directory / f"{name.stem}-step_{self._step}{name.suffix}"
        self._last = self._shelf.save_by_path(
            numbered(place), Stamp(step=self._step, epoch=self._epoch), self._save
        )
        return self._last


def is_due(order: Order, step: int | None) -> bool:
    """Whether the state at ``step`` is the one that ``order`` wants. NotSaved when it is past."""
    if order.step is None or step is None:
        return order.step is None
    if step > order.step:
        raise NotSaved(f"step {order.step} is gone: this rank is at step {step}")
    return step == order.step
