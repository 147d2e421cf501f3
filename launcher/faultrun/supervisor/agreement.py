"""Agreement of one node with itself: answers at once, by the same pure function that many nodes would use."""

from faultrun.core.agree import Adopt, Finish, Go, Rules, Wait, next_step
from faultrun.errors import assert_never
from faultrun.model.events import GoGiven, PlanAdopted, RunFinished
from faultrun.model.facts import NodeFact
from faultrun.model.plan import Plan
from faultrun.supervisor.reactor import Reactor


class LocalAgreement:
    """Implements ``ports.Agreement``. ``plan`` is the last one of a run that is continued."""

    def __init__(self, rules: Rules, plan: Plan | None, master_addr: str, reactor: Reactor) -> None:
        self._rules = rules
        self._plan = plan
        self._master_addr = master_addr
        self._reactor = reactor

    def state(self, fact: NodeFact) -> None:
        """Decide from the one statement there is, and post the answer."""
        now_s = self._reactor.clock.now()
        match next_step(self._rules, self._plan, {fact.node: fact}, now_s):
            case Adopt(plan=plan):
                self._plan = plan
                self._reactor.post(PlanAdopted(at_s=now_s, incarnation=plan.incarnation, plan=plan))
            case Go(incarnation=incarnation, master_port=port):
                self._reactor.post(
                    GoGiven(
                        at_s=now_s, incarnation=incarnation, master_addr=self._master_addr, master_port=port
                    )
                )
            case Finish(exit_code=code, why=why):
                self._reactor.post(
                    RunFinished(at_s=now_s, incarnation=fact.incarnation, exit_code=code, why=why)
                )
            case Wait():
                pass
            case other:
                assert_never(other)

    def raise_alarm(self, incarnation: int, why: str) -> None:
        """There is nobody else to tell."""
