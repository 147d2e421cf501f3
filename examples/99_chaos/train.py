"""A training without a framework that saves itself: something to rehearse faults on.

The weight follows from the step alone, so that the last line tells whether a
recovery lost or doubled a step: it is the same with and without faults.
"""

import argparse
import json
import os
import time
from pathlib import Path

from faultrun import sdk, testing

LAST_STEP = 200


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--step_s", type=float, default=0.01)
    options = parser.parse_args()
    chaos = testing.from_environment()  # the faults that FAULTRUN_CHAOS describes; without it, none

    state = {"step": 0, "weight": 1}
    point = sdk.resume()
    if point is not None:
        state.update(json.loads(Path(point.path).read_text()))
        print(f"resumed at step {state['step']}", flush=True)

    def save(path: str) -> None:
        chaos.at("save", state["step"], path=path)
        Path(path).write_text(json.dumps(state))

    sdk.start(save=save, directory="ckpt", name="state.json")
    chaos.at("compile")
    while state["step"] < LAST_STEP:
        time.sleep(options.step_s)
        with sdk.updating():
            state["step"] += 1
            state["weight"] = state["weight"] * 31 % 1000003 + state["step"]
        print(f"step: {state['step']}", flush=True)
        sdk.step(state["step"])  # the SDK knows FAULTRUN_CHAOS, too: faults of phase "step" strike here
    print(f"rank {os.environ.get('RANK', '0')}: final step {state['step']}, weight {state['weight']}")


if __name__ == "__main__":
    main()
    sdk.done()
