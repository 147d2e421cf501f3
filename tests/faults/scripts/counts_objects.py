"""faultrun, whose supervisor writes down how many objects of each kind it has as each incarnation begins."""

import gc
import json
from collections import Counter
from pathlib import Path

from faultrun.__main__ import main
from faultrun.cli.run import composition
from faultrun.model.actions import Spawn
from faultrun.supervisor.workers.worker_group import WorkerGroup


class CountedGroup(WorkerGroup):
    def spawn(self, order: Spawn) -> None:
        gc.collect()
        kinds = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
        Path(f"objects_{order.plan.incarnation}.json").write_text(json.dumps(kinds))
        super().spawn(order)


if __name__ == "__main__":
    vars(composition)["WorkerGroup"] = CountedGroup
    main()
