"""What would be decided if one more rank died now: the budget asked without being charged."""

from faultrun.core.budget import Allowed, charge
from faultrun.model.plan import Ledger
from faultrun.model.spec import RestartPolicy
from faultrun.observe.card import duration
from faultrun.observe.status_model import Outlook


def outlook(
    ledger: Ledger, policy: RestartPolicy, *, now_s: float, high_step: int, finds_checkpoints: bool
) -> Outlook:
    """``now_s`` in run-seconds; ``high_step`` is -1 when no step was ever reported."""
    answer = charge(ledger, policy, now_s=now_s, high_step=high_step)
    if not isinstance(answer, Allowed):
        return Outlook(
            restarts=False,
            number=0,
            allowed=policy.max_restarts,
            backoff_s=0.0,
            text=f"give up with that rank's exit code: {answer.why}",
        )
    where = "from the newest whole checkpoint" if finds_checkpoints else "as the script resumes by itself"
    wait = f" after {answer.backoff_s:.1f} s" if answer.backoff_s else ""
    count = f"restart {answer.number} of {policy.max_restarts} in {duration(policy.window_s)}"
    return Outlook(
        restarts=True,
        number=answer.number,
        allowed=policy.max_restarts,
        backoff_s=answer.backoff_s,
        text=f"{count}{wait}, {where}",
    )
