"""Where a script saves, read from its source: nothing of it is run, and what is not known is not guessed."""

from pathlib import Path

import pytest

from faultrun.configs.recipes.source_value import SourceCode


def nothing(_: str) -> None:
    return None


def value(folder: Path, text: str, what: str = "Arguments.output_dir", **given: str) -> str | None:
    (folder / "train.py").write_text(text)
    return SourceCode([folder / "train.py"]).value(what, given.get)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("TrainingArguments(output_dir='out')", "out"),
        ("import transformers as t\nx = t.Seq2SeqTrainingArguments(1, output_dir='out')", "out"),
        ("OUT = 'out'\nTrainingArguments(output_dir=OUT)", "out"),
        ("OUT: str = 'out'\ndef main():\n    return TrainingArguments(output_dir=f'{OUT}/run')", "out/run"),
        ("TrainingArguments(output_dir=os.path.join('a', 'b'))", "a/b"),
        ("TrainingArguments(output_dir=str(Path('a') / 'b'))", "a/b"),
        ("TrainingArguments(output_dir='a' + '/b')", "a/b"),
        ("TrainingArguments(output_dir=f'out/{name}/x')", "out"),
        ("TrainingArguments(output_dir=os.path.join('out', f'step_{n}'))", "out"),
        ("TrainingArguments(output_dir=f'step_{n}')", None),
        ("OUT = 'a'\nOUT = 'b'\nTrainingArguments(output_dir=OUT)", None),
        ("W = f's_{n}'\nif a:\n    W = os.path.join('out', W)\nTrainingArguments(output_dir=W)", "out"),
        ("TrainingArguments(output_dir=make())", None),
        ("TrainingArguments(output_dir=7)", None),
        ("TrainingArguments('out')", None),
        ("Other(output_dir='out')", None),
        ("x = x\nTrainingArguments(output_dir=x)", None),
        ("TrainingArguments(output_dir=", None),
    ],
)
def test_a_literal_value_is_known_a_computed_one_not(tmp_path: Path, text: str, known: str | None) -> None:
    assert value(tmp_path, text) == known


def test_a_positional_argument_is_known_by_its_number(tmp_path: Path) -> None:
    assert value(tmp_path, "TrainingArguments('out')", "TrainingArguments.0") == "out"
    assert value(tmp_path, "TrainingArguments('out')", "TrainingArguments.1") is None


ARGUMENTS = """
parser.add_argument("-o", "--output-dir", default="by_default")
args = parser.parse_args()
TrainingArguments(output_dir=args.output_dir)
"""


def test_a_field_of_the_scripts_arguments_is_what_is_given_else_its_default(tmp_path: Path) -> None:
    assert value(tmp_path, ARGUMENTS, output_dir="given") == "given"
    assert value(tmp_path, ARGUMENTS) == "by_default"
    fields = "@dataclass\nclass Args:\n    out: str = 'field'\nTrainingArguments(output_dir=args.out)\n"
    assert value(tmp_path, fields) == "field"
    assert value(tmp_path, "TrainingArguments(output_dir=args.out)") is None


def test_local_modules_are_looked_through_too(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(
        "def made(args):\n    return TrainingArguments(output_dir=args.out)\n"
    )
    (tmp_path / "train.py").write_text("parser.add_argument('--out', default='there')\n")
    code = SourceCode([tmp_path / "train.py", tmp_path / "missing.py", tmp_path / "settings.py"])
    assert code.value("TrainingArguments.output_dir", nothing) == "there"


BRANCHES = """
if debug:
    args = TrainingArguments(output_dir="debug_out")
else:
    args = TrainingArguments(output_dir=os.path.join(a.output_dir, "real"))
"""


def test_of_calls_that_differ_every_known_value_counts_and_the_unknown_is_noted(tmp_path: Path) -> None:
    script, what = tmp_path / "train.py", "TrainingArguments.output_dir"
    script.write_text(BRANCHES)
    code = SourceCode([script])
    assert code.values([what], {"output_dir": "o"}.get) == ("debug_out", "o/real")
    assert code.several == {what: ("debug_out", "o/real")}
    code = SourceCode([script])
    assert code.values([what], nothing) == ("debug_out",)
    assert code.several == {what: ("debug_out", "")}
    script.write_text("TrainingArguments('a')\nTrainingArguments(output_dir='b')\n")
    assert set(SourceCode([script]).values([what, "TrainingArguments.0"], nothing)) == {"a", "b"}
    script.write_text("TrainingArguments(output_dir='a')\nTrainingArguments(output_dir='a')\n")
    code = SourceCode([script])
    assert code.values([what], nothing) == ("a",)
    assert code.several == {}


def test_what_torch_saves_is_no_path_of_a_trainer(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("torch.save('state', p)\nfabric.save('there', state)\n")
    assert SourceCode([tmp_path / "train.py"]).values(["save.0"], nothing) == ("there",)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("subprocess.run(['sync', '--resume'])", None),
        ("print('--resume')\nx = '--resume'", None),
        ("parser.add_argument('-r', '--resume')", "--resume"),
        ("@click.option('--resume', default=None)\ndef main(resume): pass", "--resume"),
        ("def main(resume: str = typer.Option(None, '--resume')): pass", "--resume"),
        ("add = parser.add_argument\nadd('--resume')", "--resume"),
        ("add('--resume')", None),
        ("flags.DEFINE_string('resume', None, 'where from')", "--resume"),
        ("flags.DEFINE_bool('resume', False, 'whether')", None),
        ("flags.DEFINE_string('other', None, '--resume')", None),
    ],
)
def test_an_option_is_one_that_is_declared(tmp_path: Path, text: str, known: str | None) -> None:
    (tmp_path / "train.py").write_text(text)
    assert SourceCode([tmp_path / "train.py"]).option("resume") == known


@pytest.mark.parametrize(
    ("parsed", "known"),
    [
        ("Own", None),
        ("(Own, With)", "--resume"),
        ("(Own, Below)", "--resume"),
        ("[Own, TrainingArguments]", "--resume"),
        ("Derived", "--resume"),
    ],
)
def test_classes_in_the_source_are_options_by_field(tmp_path: Path, parsed: str, known: str | None) -> None:
    classes = "class Own:\n    out: str = 'o'\nclass With:\n    resume: str = ''\n"
    classes += "class Below(With):\n    x: int = 1\n"
    derived = "class Derived(TrainingArguments):\n    y: int = 1\n"
    (tmp_path / "train.py").write_text(f"{classes}{derived}HfArgumentParser({parsed})\n")
    assert SourceCode([tmp_path / "train.py"]).option("resume") == known


def test_an_option_is_spelled_as_the_source_does(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("add_argument('--ckpt-path')\nprint('--resume me')\n")
    code = SourceCode([tmp_path / "train.py"])
    assert code.option("ckpt_path") == "--ckpt-path"
    assert code.option("resume") is None


def test_a_flag_takes_no_path(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("add_argument('--resume', action='store_true')\nclick.option('--load', is_flag=True)\n")
    assert SourceCode([script]).option("resume") is None
    assert SourceCode([script]).option("load") is None
    script.write_text("add_argument('--resume', action='store', default='')\n")
    assert SourceCode([script]).option("resume") == "--resume"


def test_parsers_of_classes_have_options_that_no_source_spells_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n")
    assert SourceCode([tmp_path / "train.py"]).option("resume_from_checkpoint") == "--resume_from_checkpoint"
    assert SourceCode().option("resume") == "--resume", "nobody knows better"


def test_the_default_of_an_argument_is_known_without_a_call(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("parser.add_argument('--output_dir', type=str, default='.')\n")
    code = SourceCode([tmp_path / "train.py"])
    assert code.default("output_dir") == "."
    assert code.default("other") is None
