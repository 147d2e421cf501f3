"""What our SDK refuses ends the run at once, in its own words; what only failed this time is tried again."""

import json
import sys

import pytest

from support.runs import PRELUDE, Launcher, Run

REFUSED = 'sdk.start(save=7, directory="ck")\n'
WRAPPED = f"""
try:
    {REFUSED}
except Exception as error:
    raise RuntimeError("the training cannot begin") from error
"""
LATE = f"""
for number in range(1, 4):
    sdk.step(number)
{REFUSED}
"""
THIS_TIME = """
from faultrun.errors import CannotNow
if life == 0:
    raise CannotNow("the checkpoint does not fit", because="it is of another world", hint="another one")
"""
FROM_A_DISK = """
from faultrun.errors import FaultrunError
if life == 0:
    raise FaultrunError("nothing can be saved", because="no room", hint="room") from OSError("no room")
"""


def trained(launcher: Launcher, part: str) -> Run:
    script = launcher.folder / "train.py"
    script.write_text(f"{PRELUDE}\nfrom faultrun import sdk\nsdk.start()\n{part}\n")
    options = ("--worker_num=2", "--standby=none", "--backoff=10ms..20ms")
    return launcher.command(*options, sys.executable, "-u", str(script))


@pytest.mark.parametrize("part", [REFUSED, WRAPPED, LATE], ids=["refused", "wrapped", "after steps"])
def test_no_restart_is_spent_on_a_refusal_and_the_card_says_why_and_what_to_try(
    launcher: Launcher, part: str
) -> None:
    run = trained(launcher, part)
    assert run.ends() == 93, run.text
    assert not run.events("IncarnationStarted", incarnation=1)
    card = run.card(1)
    assert "  because   save is 7 and name 'gasp.ckpt', not a function and the name of a file" in card
    assert '  try       sdk.start(save=write_state, directory="ckpt", name="state.npz")' in card
    assert "  cause     refused by faultrun.sdk: " in card
    kept = json.loads((run.log_dir / "incident_1.json").read_text())
    assert "refused-by-sdk" in json.dumps(kept)


@pytest.mark.parametrize("part", [THIS_TIME, FROM_A_DISK], ids=["this time", "of a disk"])
def test_what_another_attempt_may_mend_is_tried_again(launcher: Launcher, part: str) -> None:
    run = trained(launcher, part)
    assert run.ends() == 0, run.text
    assert run.events("IncarnationStarted", incarnation=1)
