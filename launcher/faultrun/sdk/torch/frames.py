"""What a traceback holds: the variables of every frame that an exception has passed."""

import traceback


def forget_frames(error: BaseException | None) -> None:
    """Let go of tensors, graphs and the group that they hold; the script's own, which runs on, keeps its."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
