"""``group_info.pb`` as MindSpore writes it: the groups, then the restore list, ranks not packed."""

from faultrun.text.protobuf import encode_message, encode_varint


def group_info(ranks: tuple[int, ...], groups: dict[str, tuple[int, ...]] | None = None) -> bytes:
    items = b"".join(
        encode_message(1, encode_message(1, name.encode()) + encode_message(2, _ranks(members)))
        for name, members in (groups or {}).items()
    )
    return items + encode_message(2, _ranks(ranks))


def _ranks(ranks: tuple[int, ...]) -> bytes:
    return b"".join(b"\x08" + encode_varint(rank) for rank in ranks)
