"""Reads Trainer's own checkpoints of models that transformers 5 writes with other names than they go by.

``save_pretrained`` turns, say, the experts of a mixture back into the hub's names. Trainer looks for the
model's own (``load_state_dict(strict=False)``), and leaves what it does not find as it was made: random.
"""

import copy
import json
from pathlib import Path
from typing import Any

from safetensors import safe_open

from faultrun.errors import CannotNow
from faultrun.sdk.torch.state.rng import current_rng, restore_rng

_FILE = "model.safetensors"


def read_by_class(folder: Path, model: Any) -> None:
    """Have the model's class read what Trainer has not found in ``folder``. CannotNow: neither does that."""
    lacking = _lacking(folder, model)
    if not lacking:
        return
    still = lacking
    if hasattr(model, "from_pretrained"):
        numbers, config = current_rng(), copy.deepcopy(model.config)
        made, told = type(model).from_pretrained(folder, config=config, output_loading_info=True)
        restore_rng(numbers)
        found = made.state_dict()
        model.load_state_dict({name: found[name] for name in lacking}, strict=False)
        still = [name for name in lacking if name in told["missing_keys"]]
    if still:
        raise CannotNow(
            f"{folder} does not hold all of the model",
            because=f"nothing there has the name {still[0]}, and {len(still) - 1} more, which Trainer would"
            " begin anew",
            hint="resume from another checkpoint, or remove this one to begin at the beginning",
        )


def _lacking(folder: Path, model: Any) -> list[str]:
    """What of the model is under no name of its own in the files of ``folder``, nor tied to one that is."""
    index = folder / f"{_FILE}.index.json"
    if (folder / _FILE).is_file():
        with safe_open(folder / _FILE, framework="pt") as file:
            names = frozenset(file.keys())
    elif index.is_file():
        names = frozenset(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
    else:
        return []
    state = {name: one for name, one in model.state_dict().items() if hasattr(one, "data_ptr")}
    tied = {one.data_ptr() for name, one in state.items() if name in names}
    ignored = getattr(model, "_keys_to_ignore_on_save", None) or ()
    return [
        name
        for name, one in state.items()
        if name not in names and name not in ignored and one.data_ptr() not in tied
    ]
