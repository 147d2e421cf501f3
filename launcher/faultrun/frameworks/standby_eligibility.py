"""Whether a standby of a program can be like a fresh worker of it: what its command and source say.

A standby has imported the framework before the program's first line. A
program whose first lines change what that import does must start fresh.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from faultrun.frameworks.detect import UnreadableSource, frameworks_of, local_modules, read_imports, read_tree
from faultrun.frameworks.environ_settings import names_set
from faultrun.model.spec.run_spec import Framework

ESTIMATES_BYTES = {Framework.TORCH: 450 << 20, Framework.MINDSPORE: 800 << 20}
"""What a rehearsed standby is taken to need: PSS measured alone, and a half."""

_READ_AT_IMPORT = re.compile(
    r"(OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|NUMEXPR|TBB|LD|MALLOC|TORCH|PYTORCH|CUDA|NVIDIA|GLOO|TORCHINDUCTOR"
    r"|ASCEND|CANN|NPU|MS|GLOG|MINDSPORE|OPENCV|HIP|ROCR|HSA|XLA)_.*|.*_(NUM_)?THREADS"
)
_INTERPRETER, _HARMLESS = r"[^/]*/?python(\d(\.\d+)?)?", r"-[bBdOPqsuv]+"
_VALUED = ("-W", "-X")


def program_at(argv: Sequence[str]) -> int:
    """Where the program begins in ``argv``: its file, ``-m`` or ``-c``; 0 when no standby can wait there.

    It waits in a hook of Python's ``site``. So the command must be a Python, and none of its options
    may turn the hook or ``PYTHONPATH`` off (-S, -E, -I) or be unknown.
    """
    if not argv or not re.fullmatch(_INTERPRETER, Path(argv[0]).name):
        return 0
    at = 1
    while at < len(argv):
        if (word := argv[at]) in ("-m", "-c"):
            return at if at + 1 < len(argv) else 0
        if not word.startswith("-"):
            return at
        if word in _VALUED:
            at += 2
        elif re.fullmatch(_HARMLESS, word) or word.startswith(_VALUED):
            at += 1
        else:
            return 0
    return 0


def comes_to_hook(argv: Sequence[str]) -> bool:
    """Whether the Python that the command is, or the first that it starts, comes to our hook if it can."""
    return bool(program_at(argv)) or not re.fullmatch(_INTERPRETER, Path(argv[0]).name)


def doubts(source: Path | None, search: Sequence[Path], framework: Framework) -> Iterator[str]:
    """What speaks against standbys, each as a phrase; reads the program and its local modules."""
    if framework not in ESTIMATES_BYTES:
        yield f"nothing can be rehearsed for a {framework.value} program"
        return
    if source is None:
        yield "the program's source cannot be seen"
        return
    try:
        names = read_imports(source)
    except UnreadableSource as error:
        yield f"{source} cannot be read: {error}"
        return
    seen = frameworks_of(names)
    files = [source]
    for module in local_modules(names, source, search):
        try:
            seen |= frameworks_of(read_imports(module))
        except UnreadableSource:
            continue
        files.append(module)
    if len(seen) > 1:
        yield f"{source} imports {' and '.join(sorted(one.value for one in seen))}"
    for file in files:
        for line, name in names_set(read_tree(file)):
            if name is None or _READ_AT_IMPORT.fullmatch(name):
                shown = name or "an environment variable"
                yield f"{file}:{line} sets {shown}, which the framework may read when it is imported"
