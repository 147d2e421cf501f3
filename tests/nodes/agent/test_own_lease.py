"""A lease is renewed only while its node's supervisor hands on what it is told."""

from types import SimpleNamespace
from typing import Any

import pytest

from faultrun.nodes.agent import own_lease


def test_a_supervisor_that_stands_still_is_not_well_however_often_it_is_told_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, page = [0.0], SimpleNamespace(at_s=0.0)
    monkeypatch.setattr(own_lease, "boot_now", lambda: now_s[0])
    setting: Any = SimpleNamespace(deadline=page, terms=SimpleNamespace(times=SimpleNamespace(ttl_s=4.0)))
    unused: Any = None
    lease = own_lease.OwnLease(unused, setting, unused, unused, unused)
    well = []
    for now_s[0] in (1.0, 1.9, 2.8, 3.7):
        lease.let_live(now_s[0] + 3.0)
        well.append(lease._supervisor_is_well())
        page.at_s = now_s[0] + 3.0 if now_s[0] == 1.0 else page.at_s
    assert well == [True, True, True, False]
