"""What of the options others may see."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.core.redact import HIDDEN, without_logins, without_secret_values

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "args",
    [
        *(("--hub_token=s3cr3t",), ("--hub-token", "s3cr3t")),
        ("-token", "s3cr3t", "--lr=0.1"),
        *(("wandb.api_key=s3cr3t",), ("--API-KEY=s3cr3t",)),
        ("--db_password=s3cr3t=",),
        ("+trainer.auth=s3cr3t",),
        ("--secret-key", "s3cr3t"),
        ("--wandb_key=s3cr3t",),
        ("model.enc_key=s3cr3t",),
        *(("--key=s3cr3t",), ("--db-pwd=s3cr3t",)),
    ],
)
def test_the_value_of_an_option_that_is_called_like_a_secret_is_hidden(args: tuple[str, ...]) -> None:
    shown = without_secret_values(args)
    assert SECRET not in " ".join(shown)
    assert HIDDEN in " ".join(shown)
    assert len(shown) == len(args)


@pytest.mark.parametrize(
    "args",
    [
        ("--tokenizer=gpt2", "--max_tokens=512", "--pre_trained=/ckpt/a.ckpt"),
        ("--token", "--lr=0.1"),
        ("token", "train"),
        ("author=me",),
        ("--monkey=3", "--keys=a,b"),
    ],
)
def test_what_is_no_secret_stays(args: tuple[str, ...]) -> None:
    assert without_secret_values(args) == args


@given(st.text(st.characters(exclude_characters="/@ \n\t\r\x0b\x0c", categories=["L", "N", "P"]), min_size=1))
def test_an_address_keeps_its_host_and_loses_its_login(login: str) -> None:
    shown = without_logins({"a": [f"https://{login}@etcd.example.org:2379/x"], "b": 1})
    assert shown == {"a": [f"https://{HIDDEN}@etcd.example.org:2379/x"], "b": 1}
