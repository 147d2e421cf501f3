"""Ascend's fault files: ``fault-npus`` of Volcano and ``reset.json`` of the device plugin and ClusterD.

``fault-npus`` has been written in six shapes since 2021 (Volcano's Go structs, the device plugin's
``TaskFaultInfo``, scripts that wrote a Python ``repr`` back); all are read here. ``reset.json`` is the device
plugin's ``TaskResetInfo``. Both begin as ``{"status":"initializing"}``, which says nothing. Every parser is
total: a value, None for "nothing is said yet", or ValueError with a reason that follows "because:".
"""

import re
from collections.abc import Mapping, Sequence

from faultrun.model.observed.platform_notice import (
    FaultRanks,
    RankStatus,
    ReportedRank,
    ResetNotice,
    RestartKind,
)
from faultrun.platforms.untrusted_files import json_document, loose_document, python_literal

MOST_FAULT_FILE_BYTES = 1 << 20
HIGHEST_RANK = 4095
_LIST_CHARS = 15_274
_RANK = re.compile(r"\d{1,4}", re.ASCII)
_RANK_NAMES = ("FaultRankIds", "FaultRank")
_TIME_NAMES = ("UpdateTime", "CreatTime", "CreateTime")
_SHOWN_CHARS = 64


def parse_fault_ranks(content: bytes) -> FaultRanks | None:
    """Read ``fault-npus``.

    Ranks come as a list of numbers or of texts, as a text that holds such a
    list, as ``"0,1"``, or null for none.
    """
    document = _object(loose_document(content))
    if (name := next((name for name in _RANK_NAMES if name in document), None)) is None:
        _check_initializing(document, "it names neither FaultRankIds nor FaultRank")
        return None
    created = next((document[name] for name in _TIME_NAMES if name in document), 0)
    return FaultRanks(ranks=_ranks(document[name], name), created_at=created if type(created) is int else 0)


def parse_reset(content: bytes) -> ResetNotice | None:
    """Read ``reset.json`` without the ``restartType`` beside it.

    A rank that is listed twice with different states, or a state that no document
    documented, makes the whole file unbelievable.
    """
    document = _object(json_document(content))
    if "RankList" not in document and "GracefulExit" not in document:
        _check_initializing(document, "it has no RankList")
        return None
    found: dict[int, ReportedRank] = {}
    for entry in _listed(document.get("RankList")):
        reported = _reported(_object(entry, "an entry of RankList"))
        if found.setdefault(reported.rank, reported).status is not reported.status:
            raise ValueError(f"it lists rank {reported.rank} twice with different states")
    return ResetNotice(
        ranks=tuple(found[rank] for rank in sorted(found)),
        flushing=_flag(document, "FaultFlushing"),
        graceful_exit=_flag(document, "GracefulExit"),
        restart_in_place=_flag(document, "RestartFaultProcess"),
        retry_time=_whole(document.get("RetryTime", 0), "RetryTime"),
        update_time=_whole(document.get("UpdateTime", 0), "UpdateTime"),
    )


def parse_restart_kind(content: bytes) -> RestartKind:
    """Read ``restartType``; a word that is not documented counts as none."""
    word = content[:_SHOWN_CHARS].decode("ascii", "replace").strip().strip('"')
    return next((kind for kind in RestartKind if kind.value == word), RestartKind.UNSTATED)


def parse_version(content: bytes) -> int:
    """Read ``version``, the file beside a rank table on shared storage: one decimal number."""
    text = content[:_SHOWN_CHARS].decode("ascii", "replace").strip()
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise ValueError(f"{text[:20]!r} is not a version number")
    return int(text)


def _check_initializing(document: Mapping[str, object], otherwise: str) -> None:
    """A file without a word of ours must at least say that it has just been made."""
    if document.get("status") != "initializing":
        raise ValueError(otherwise)


def _listed(value: object) -> Sequence[object]:
    match value:
        case None:
            return ()
        case list():
            return value
        case _:
            raise ValueError("its RankList is not a list")


def _reported(entry: Mapping[str, object]) -> ReportedRank:
    word = entry.get("Status")
    status = next((status for status in RankStatus if status.value == word), None)
    rank = _rank(entry.get("RankId"), "RankId")
    if status is None:
        raise ValueError(f"rank {rank} has the unknown status {str(word)[:20]!r}")
    error = _shown(entry.get("ErrorCodeHex"))
    return ReportedRank(rank=rank, status=status, policy=_shown(entry.get("Policy")), error=error)


def _ranks(value: object, name: str) -> frozenset[int]:
    match value:
        case None:
            return frozenset()
        case list() | tuple() | set():
            return frozenset(_rank(entry, name) for entry in value)
        case str() if len(value) > _LIST_CHARS:
            raise ValueError(f"its {name} is a text of {len(value)} characters")
        case str() if not value.strip():
            return frozenset()
        case str() if value.lstrip().startswith(("[", "(")):
            match python_literal(value):
                case (list() | tuple()) as inner:
                    return frozenset(_rank(entry, name) for entry in inner)
                case _:
                    raise ValueError(f"its {name} is a text that holds no list")
        case str():
            return frozenset(_rank(entry, name) for entry in value.split(","))
        case _:
            raise ValueError(f"its {name} is not a list of ranks")


def _rank(value: object, name: str) -> int:
    """A rank as number or text; True is no rank, and neither are -1, 1.0 or an empty text."""
    if isinstance(value, str) and _RANK.fullmatch(value.strip()):
        value = int(value)
    if type(value) is not int:
        raise ValueError(f"{str(value)[:20]!r} in {name} is not a rank")
    if not 0 <= value <= HIGHEST_RANK:
        raise ValueError(f"{value} in {name} is not a rank of 0 to {HIGHEST_RANK}")
    return value


def _whole(value: object, name: str) -> int:
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is {str(value)[:20]!r}, not a whole number")
    return value


def _flag(document: Mapping[str, object], name: str) -> bool:
    """Go writes false and true for some switches, 0 and 1 for others."""
    if (value := document.get(name, False)) in (0, 1) and isinstance(value, int):
        return bool(value)
    raise ValueError(f"{name} is {str(value)[:20]!r}, neither 0 nor 1")


def _shown(value: object) -> str:
    """A text for people: one line, printable, short."""
    text = value if isinstance(value, str) else ""
    return "".join(char for char in text if char.isprintable())[:_SHOWN_CHARS]


def _object(value: object, what: str = "it") -> Mapping[str, object]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{what} is not an object")
    return value
