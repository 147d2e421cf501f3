"""What every node of a run agrees on, made of its ``RunSpec``; one node alone, too."""

from pathlib import Path

from faultrun.core.plan.next_plan import Rules
from faultrun.model.exits import WorkerExitCodes
from faultrun.model.spec.run_settings import RunSettings
from faultrun.model.spec.run_spec import RunSpec


def rules_of(spec: RunSpec) -> Rules:
    """What every node of the run agrees on."""
    return Rules(
        topology=spec.topology,
        policy=spec.supervision.policy,
        exit_code_on_stop=spec.supervision.exit_code_on_stop,
        resume_args=spec.recovery.resume_args,
        lease_ttl_s=0.0 if spec.agreement is None else spec.agreement.lease_ttl_s,
        settings=RunSettings.of(spec, str(Path(spec.logs.log_dir).absolute().parent)),
        elastic=spec.elastic,
        stays=_stays(spec),
    )


def _stays(spec: RunSpec) -> bool:
    """Whether survivors are to stay where a node is lost; a training that recovers by itself has no nodes.

    With a rank table who comes instead has to be in it first, and the ranks need the new one.
    """
    supervision = spec.supervision
    if spec.elastic is not None and spec.elastic.fixed_seats:
        return False
    return supervision.windows.rejoin_s > 0 and supervision.policy.exit_codes is WorkerExitCodes.USUAL
