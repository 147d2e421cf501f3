"""How a script takes what a restart hands over: options where their parser reads, one file, Hydra's words."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from faultrun.configs.argv import resume_args
from faultrun.configs.hand_over import HandOver, hand_over
from faultrun.model.spec.run_spec import Rewrite

RESUME, NEW = ("--resume={checkpoint}",), ("--resume=/new",)
TOP = "p = argparse.ArgumentParser()\np.add_argument('--resume')\np.add_argument('-v', action='store_true')\n"
SUB = "p = argparse.ArgumentParser()\nsub = p.add_subparsers(dest='what')\ntrain = sub.add_parser('train')\n"
COMMON = "def common(q):\n    q.add_argument_group('more').add_argument('--resume')\n"


def taken(folder: Path, source: str, args: Sequence[str], options: Sequence[str] = RESUME) -> HandOver:
    script = folder / "t.py"
    script.write_text(source)
    return hand_over(options, args, script, [script])


@pytest.mark.parametrize(
    ("source", "args"),
    [
        (TOP + "p.add_argument('rest', nargs=argparse.REMAINDER)", "-v OUT ckpt"),
        (TOP + "p.add_argument('config')\np.add_argument('rest', nargs='...')", "c.yaml -v OUT ckpt"),
        (TOP + "p.add_argument('--opts', nargs=argparse.REMAINDER)", "-v --opts OUT ckpt"),
        (TOP + "p.add_subparsers().add_parser('train').add_argument('--lr')", "-v train --lr 1"),
        (SUB + "train.add_argument('--resume')", "train"),
        (SUB + "train.add_argument('--resume')\ntrain.add_argument('rest', nargs='...')", "train OUT ckpt"),
        (COMMON + SUB + "common(train)", "train"),
        (COMMON + SUB + "common(p)", "train"),
        (
            SUB + "class A:\n    def common(self, q):\n        q.add_argument('--resume')\nA().common(train)",
            "train",
        ),
        (
            "base = argparse.ArgumentParser(add_help=False)\nbase.add_argument('--resume')\n"
            "p = argparse.ArgumentParser()\np.add_subparsers().add_parser('train', parents=[base])",
            "train",
        ),
        (
            "p = argparse.ArgumentParser()\nsub = p.add_subparsers()\nfor name in ('a', 'train'):\n"
            "    one = sub.add_parser(name)\n    one.add_argument('--resume')",
            "train",
        ),
        (TOP, "-v"),
    ],
)
def test_an_option_reaches_the_parser_that_declares_it(tmp_path: Path, source: str, args: str) -> None:
    source = f"import argparse\n{source}\n"
    found = taken(tmp_path, source, args.split())
    scope: dict[str, Any] = {}
    exec(source, scope)
    parser: argparse.ArgumentParser = scope["p"]
    before = vars(parser.parse_args(args.split()))
    after = vars(parser.parse_args(resume_args(args.split(), NEW, found.at)))
    assert after == {**before, "resume": "/new"}


CLICK = "import click\n@click.group()\n{}\ndef cli(**_): pass\n@cli.command()\n{}\ndef train(**_): pass\n"


@pytest.mark.parametrize(
    ("groups", "commands", "at"),
    [
        ("@click.option('--resume')", "@click.option('--lr')", 0),
        ("@click.option('-v')", "@click.option('--resume')", None),
    ],
)
def test_an_option_of_a_click_group_goes_before_its_command(
    tmp_path: Path, groups: str, commands: str, at: int | None
) -> None:
    assert taken(tmp_path, CLICK.format(groups, commands), ["train"]).at == at


def test_behind_a_launcher_the_scripts_own_words_begin(tmp_path: Path) -> None:
    source = f"import argparse\n{TOP}p.add_argument('rest', nargs='...')"
    args = ["launch", "--resume=its", str(tmp_path / "t.py"), "OUT"]
    assert taken(tmp_path, source, args).at == 3


COUNTS = "import sys\nif len(sys.argv) == 2 and sys.argv[1].endswith('.json'): c = sys.argv[1]\n"
HAND_WRITTEN = "import json, sys\nc = json.load(open(sys.argv[1]))\n"
HF = "from transformers import HfArgumentParser as P\nimport sys\nP(A).parse_json_file(sys.argv[1])\n"


@pytest.mark.parametrize(
    "source",
    [COUNTS + f"else:\n    import argparse\n    {TOP.splitlines()[0]}\n    p.parse_args()", HAND_WRITTEN, HF],
)
@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ('{"resume_from": null}', "resume_from"),
        ('{"train": {"resume-from": ""}}', "train.resume-from"),
        ("{}", "resume_from"),
    ],
)
def test_a_script_that_takes_one_file_finds_there_what_it_is_to_load(
    tmp_path: Path, source: str, settings: str, key: str
) -> None:
    file = str(tmp_path / "args.json")
    Path(file).write_text(settings)
    options = ("--resume-from={checkpoint}",)
    assert taken(tmp_path, source, [file], options) == HandOver(
        resume_args=(), rewrites=(Rewrite(file=file, key=key, template="{checkpoint}"),)
    )
    for others in ([file, "--lr=1"], ["x.txt"], []):
        assert taken(tmp_path, source, others, options).rewrites == ()
    helps = "import argparse, sys\nif len(sys.argv) == 1: print('.json')\nargparse.ArgumentParser()"
    assert taken(tmp_path, helps, [file], options).rewrites == ()


@pytest.mark.parametrize(
    ("template", "quoted"),
    [
        ("+ckpt={checkpoint}", "+ckpt='{checkpoint}'"),
        ("ckpt={checkpoint_dir}/epoch={epoch}.ckpt", "ckpt='{checkpoint_dir}/epoch={epoch}.ckpt'"),
        ("ckpts=[{checkpoint},{checkpoint_dir}]", "ckpts=['{checkpoint}','{checkpoint_dir}']"),
        ('ckpt="{checkpoint}"', 'ckpt="{checkpoint}"'),
        ("step={global_step}", "step={global_step}"),
        ("resume=true", "resume=true"),
        ("--ckpt={checkpoint}", "--ckpt={checkpoint}"),
    ],
)
def test_hydra_gets_paths_in_quotes_and_nobody_else(tmp_path: Path, template: str, quoted: str) -> None:
    assert taken(tmp_path, "import hydra", [], [template]).resume_args == (quoted,)
    assert taken(tmp_path, "# like hydra\nimport sys", [], [template]).resume_args == (template,)


def test_a_word_of_hydra_is_replaced_however_it_was_added_and_its_quotes_hold() -> None:
    args = ["++ckpt=null", "lr=1"]
    assert resume_args(args, ["+ckpt='/it's/epoch=0.ckpt'"]) == ("++ckpt='/it\\'s/epoch=0.ckpt'", "lr=1")
