"""``incident_<n>.json``: every key that is written is described in the documentation."""

import dataclasses
from typing import Any

import pytest

from faultrun.model.incident import Card, Cause, Incident, Save, Unsaved
from faultrun.model.observed.evidence import Finding, Raised, Signature
from support.places import DOCS

PAGE = (DOCS / "when-a-run-fails.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("value", [Card, Incident, Save, Unsaved, Finding, Raised, Signature])
def test_every_key_is_documented(value: Any) -> None:
    missing = [field.name for field in dataclasses.fields(value) if f"`{field.name}`" not in PAGE]
    assert missing == []


def test_every_cause_of_today_is_documented() -> None:
    known = {"signal", "exit", "scheduler", "spawn", "platform", "hang"}
    assert known <= {cause.value for cause in Cause}
    assert all(f"`{cause}`" in PAGE for cause in known)
