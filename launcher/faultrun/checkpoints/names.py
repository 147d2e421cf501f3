"""What file and directory names say: ranks and unfinished saves. Knows no format."""

import re
from functools import lru_cache

_RANK_DIRECTORY = re.compile(r"(?:rank|ckpt|device|mp_rank|process)[_-]?(\d{1,6})", re.IGNORECASE)
_UNFINISHED_FILE = re.compile(
    r"(?:\.(?:tmp|temp|part|partial|incomplete|writing|swp)(?:[.\-_]?\w*)?|~|_tmp)$"
    r"|^\.nfs[0-9a-f]+$|^\.?tmp[._-]",
    re.IGNORECASE,
)
_COUNTED_DIRECTORY = re.compile(
    r"^(?P<word>(?:.*[_-])?(?:rank|ckpt|device|step|epoch|iter|iteration|checkpoint))[_-]?\d+(?=_tmp$|$)",
    re.IGNORECASE,
)


def rank_of_directory(path: str) -> int | None:
    """The rank that the last two names of directory ``path`` tell: ``rank_3``, ``ckpt_3``, ``rank3/weights``.

    Both the MindSpore layouts (``rank_R``, ResNet's ``ckpt_R``) and torch's
    ``rankR`` are meant; ``step_3`` is not.
    """
    for name in path.rsplit("/", 2)[:0:-1]:
        found = _RANK_DIRECTORY.fullmatch(name)
        if found:
            return int(found[1])
    return None


def unfinished_directory(path: str, root: str) -> str:
    """Why all in ``path`` is unfinished: a directory below ``root`` ends in ``_tmp`` or ``.tmp``; else ''."""
    for name in path[len(root) :].split("/"):
        if name.endswith(("_tmp", ".tmp")):
            return f"its directory {name} ends in {name[-4:]}: the save was not finished"
    return ""


def is_unfinished_name(name: str) -> bool:
    """Whether writers use such a file name before the final rename (``.tmp``, ``.part``, ``x~`` ...)."""
    return _UNFINISHED_FILE.search(name) is not None


def base_name(path: str) -> str:
    """The last component of a path."""
    return path.rsplit("/", 1)[-1]


@lru_cache(maxsize=4096)
def place_of(directory: str) -> str:
    """``directory`` with the numbers of ranks and steps taken out: one for all files of a training code."""
    return "/".join(_COUNTED_DIRECTORY.sub(r"\g<word>*", name) for name in directory.split("/"))
