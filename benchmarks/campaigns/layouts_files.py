"""What is done to files in a case of the zoo of layouts, and small files as frameworks write them."""

import json
import pickle
import struct
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One thing that is done: by the code, or by a user where ``what`` is copy or touch."""

    what: str
    path: str = ""
    who: str = ""
    step: int = 0


def perform(op: Op, root: Path) -> str:
    """Do it below ``root``; the path that the kernel says was written, "" for none."""
    path = root / op.path
    path.parent.mkdir(parents=True, exist_ok=True)
    data = payload(op.path, op.who, op.step) if op.who and op.what != "move" else b""
    half = data[: len(data) * 2 // 3]
    match op.what:
        case "write" | "torn" | "empty":
            partial = path.with_name(f".{path.name}.tmp")
            partial.write_bytes({"write": data, "torn": half, "empty": b""}[op.what])
            partial.replace(path)
        case "tmp":
            path.with_name(f".{path.name}.tmp").write_bytes(half)
            return ""
        case "place" | "half":
            path.write_bytes(data if op.what == "place" else half)
        case "copy" if (root / op.who).exists():
            path.write_bytes((root / op.who).read_bytes())
        case "move" if (root / op.who).exists():
            (root / op.who).replace(path)
        case "touch" if path.exists():
            path.touch()
        case "remove":
            path.unlink(missing_ok=True)
            with suppress(OSError):
                path.parent.rmdir()
            return ""
        case "pointer":
            path.write_text(op.who, encoding="utf-8")
        case "link":
            with suppress(FileNotFoundError):
                path.unlink()
            path.symlink_to(op.who)
            return ""
        case _:
            return ""
    return str(path)


def payload(name: str, who: str, step: int) -> bytes:
    """The bytes of a small file of safetensors or of ``torch.save``, that says of which save it is."""
    if name.endswith(".safetensors"):
        said = {"who": who} | ({"step": str(step)} if step else {})
        tensor = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
        head = json.dumps({"__metadata__": said, "w": tensor})
        return struct.pack("<Q", len(head)) + head.encode() + bytes(16)
    written = BytesIO()
    with zipfile.ZipFile(written, "w") as file:
        state = {"who": who} | ({"step": step} if step else {})
        file.writestr("archive/data.pkl", pickle.dumps(state, protocol=2))
        file.writestr("archive/byteorder", "little")
        file.writestr("archive/version", "3\n")
    return written.getvalue()


def read(path: Path) -> str:
    """Of which save a file says that it is; "" if it is not there, or not whole."""
    with suppress(OSError, zipfile.BadZipFile, struct.error, ValueError):
        data = path.read_bytes()
        if path.name.endswith(".safetensors"):
            (size,) = struct.unpack("<Q", data[:8])
            said = json.loads(data[8 : 8 + size])["__metadata__"] if len(data) == size + 24 else {"who": ""}
            return str(said["who"])
        with zipfile.ZipFile(BytesIO(data)) as file:
            return str(pickle.loads(file.read("archive/data.pkl"))["who"])  # noqa: S301 - it is our own
    return ""
