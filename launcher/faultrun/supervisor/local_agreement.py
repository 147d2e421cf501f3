"""Agreement of one node with itself: answers at once, by the same pure function that many nodes would use."""

from faultrun.core.plan.next_plan import Rules, next_step
from faultrun.core.plan.waiting import Waiting
from faultrun.model.actions import RaiseAlarm
from faultrun.model.events import PlanAdopted
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.plan import Plan
from faultrun.supervisor.reactor import Reactor


class LocalAgreement:
    """Implements ``interfaces.Agreement``. ``plan`` is the last one of a run that is continued."""

    def __init__(self, rules: Rules, plan: Plan | None, reactor: Reactor) -> None:
        self._rules, self._plan, self._reactor = rules, plan, reactor

    def publish(self, fact: NodeFact) -> None:
        """Decide from the one statement there is, and post the answer."""
        answer = next_step(self._rules, self._plan, {fact.node: fact}, self._reactor.now())
        if isinstance(answer, PlanAdopted):
            self._plan = answer.plan
        if not isinstance(answer, Waiting):
            self._reactor.post(answer)

    def raise_alarm(self, order: RaiseAlarm) -> None:
        """There is no other node to tell."""

    def tell_nodes(self, incarnation: int, works: str) -> None:
        """There is no other node to tell."""
