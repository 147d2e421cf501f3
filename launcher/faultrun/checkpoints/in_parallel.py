"""Many looks at files at once; by hand, for ``concurrent.futures`` brings half a megabyte into PID 1."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import TypeVar

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


def in_parallel(
    look: Callable[[_Item], _Found], items: Sequence[_Item], *, most: int, name: str
) -> list[_Found]:
    """A look at each of ``items``, in their order, by at most so many threads; this one is the first.

    What a look raises is raised here, once none looks any more.
    """
    found: dict[int, _Found] = {}
    failed: list[BaseException] = []
    left = iter(list(enumerate(items)))  # a list's iterator gives each item to one thread

    def work() -> None:
        try:
            for at, one in left:
                if failed:
                    return
                found[at] = look(one)
        except BaseException as error:  # noqa: BLE001  raised below, where it is heard
            failed.append(error)

    others: list[Thread] = []
    with suppress(RuntimeError):  # there are as many processes as there may be
        while len(others) < min(most, len(items)) - 1:
            other = Thread(target=work, name=f"{name}_{len(others) + 1}")
            other.start()
            others.append(other)
    work()
    for other in others:
        other.join()
    if failed:
        raise failed[0]
    return [found[at] for at in range(len(items))]
