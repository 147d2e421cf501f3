"""What a file of a save is called but for what counts saves, and which numbers tell its files apart. Pure."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, count

from faultrun.checkpoints.names import base_name, is_unfinished, plainly_numbered, rank_left_open, step_in
from faultrun.model.observed.saves import SeenSave

_OF_A_SAVE = re.compile(
    r".+\.(?:pt|pth|tar|ckpt|bin|safetensors|pkl|npz|npy|msgpack|h5|distcp|zip|weights|params|state|model|keras"
    r"|hdf5|pdparams|pdopt|joblib|ubj|gz)|\.metadata",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+")
_PIECE = re.compile(r"__\d+_\d+\.distcp$")
"""A piece of torch.distributed.checkpoint (``filesystem.py``): a rank and a count of its own, no save's."""
_PART = re.compile(
    r"(?:shard|part|gpu|device|worker|proc|(?<![a-z])[mpdt]p)[-_=]?#|#(?=-of-#)", re.IGNORECASE
)
"""Words of a part of a save: a guess, made until a second save shows which number counts."""


def is_of_a_save(path: str) -> bool:
    """Whether a file's name may be that of a part of a checkpoint."""
    name = base_name(path)
    return _OF_A_SAVE.fullmatch(name) is not None and not is_unfinished(name)


def kind_of_file(path: str, shards: Mapping[str, Collection[int]]) -> tuple[str, int | None]:
    """What a file is called but for its number, whichever rank wrote it; and that number.

    In a folder that is named by a step a file keeps the numbers of its own: ``step_20/encoder2.pt``.
    """
    folder, _, name = parts_apart(path, shards).rpartition("/")
    told = next((told for part in reversed(folder.split("/")) if (told := step_in(part))), None)
    if told is not None and step_in(name) is None:
        number = told[1]
        return f"{masked(folder)}/{masked_number(name, number)}", number
    numbers = _NUMBER.findall(f"{folder}/{name}")
    own = step_in(name)
    return masked(f"{folder}/{name}"), own[1] if own else int(numbers[-1]) if numbers else None


def parts_apart(path: str, shards: Mapping[str, Collection[int]]) -> str:
    """``path`` of any rank; what tells it from other files of its save, by ``shards``, is no number there."""
    opened = _PIECE.sub(lambda piece: no_number(piece[0]), of_any_rank(path))
    mask = masked(opened)
    name, parts = next(((name, one) for name, one in shards.items() if mask.endswith(name)), (mask, ()))
    at = count(name.count("#") - mask.count("#"))
    opened = _NUMBER.sub(lambda one: no_number(one[0]) if next(at) in parts else one[0], opened)
    return re.sub(r"-of-\d+", lambda total: no_number(total[0]), opened)


def no_number(text: str) -> str:
    """``text`` with digits that are none for those who look for numbers: to compare names by."""
    return text.translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def shards_in(saves: Iterable[SeenSave], roots: Sequence[str]) -> dict[str, set[int]]:
    """Which numbers of a name tell files of one save apart, by the name without its numbers."""
    found: dict[str, set[int]] = defaultdict(set)
    for name, alike in chain.from_iterable(by_name([save.files], roots).items() for save in saves):
        found[name] |= differing(alike).keys()
    return found


def by_name(saves: Iterable[Iterable[str]], roots: Sequence[str]) -> dict[str, list[str]]:
    """The files of ``saves`` below ``roots`` by their names without numbers, whichever rank wrote them."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in (of_any_rank(inside(one, roots)) for one in chain.from_iterable(saves)):
        found[masked(path)].append(path)
    return found


def parts_among(alike: Sequence[str], every: Iterable[str], step: int | None) -> set[int]:
    """Which numbers of ``alike``, written at one ``step``, tell its parts; ``every`` has all like them.

    Another number must count saves: it changes among ``every``, or is the step, or words say which are parts.
    """
    parts, name = differing(alike), masked(alike[0])
    by_word = {name.count("#", 0, one.end() - 1) for one in _PART.finditer(name)}
    counted = differing(every).keys() - parts or parts.keys() <= by_word
    counted = counted or step in numbers_but(alike[0], parts)
    in_turn = all(max(one) - min(one) < len(one) for one in parts.values())
    told = {tuple(map(step_in, one.split("/"))) for one in alike}
    return {*parts} if counted and in_turn and len(told) == 1 else set()


def differing(alike: Iterable[str]) -> dict[int, set[int]]:
    """Where paths that are ``alike`` have different numbers, counted from their beginning, and which."""
    columns = enumerate(zip(*(map(int, _NUMBER.findall(path)) for path in alike), strict=True))
    return {at: numbers for at, column in columns if len(numbers := {*column}) > 1}


def numbers_but(path: str, parts: Collection[int]) -> set[int]:
    """The numbers of ``path``, counted from its beginning, without those at ``parts``."""
    return {int(one) for at, one in enumerate(_NUMBER.findall(path)) if at not in parts}


def of_any_rank(path: str) -> str:
    """``path`` without the numbers of ranks, other numbers in plain digits."""
    return "/".join(rank_left_open(plainly_numbered(part)) for part in path.split("/"))


def masked(text: str) -> str:
    """``text`` with its numbers taken out."""
    return _NUMBER.sub("#", plainly_numbered(text))


def masked_number(text: str, number: int | None) -> str:
    """``text`` with this one of its numbers taken out.

    By one pattern for all numbers: of those with a number in them ``re`` would keep hundreds.
    """
    return _NUMBER.sub(lambda one: "#" if int(one[0]) == number else one[0], text)


def inside(path: str, roots: Sequence[str]) -> str:
    """``path`` below the one of ``roots`` that it lies in."""
    return next((path[len(root) :] for root in roots if path.startswith(f"{root}/")), path)
