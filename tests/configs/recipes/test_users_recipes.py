"""Recipes of one's own: references are filled in, and every mistake is named by its line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.configs.recipes.packaged import recipe_file
from faultrun.configs.recipes.reference import Unknown, filled, filled_template
from faultrun.core import template
from faultrun.errors import ConfigError
from faultrun.model.spec.run_spec import Pointer
from support.asking import plan
from support.machine.scripts import faultrun

Write = Callable[[str], str]


@pytest.fixture(autouse=True)
def folder(here: Path) -> Path:
    """Every test works in a folder of its own, with a script in it."""
    (here / "train.py").write_text("import torch\n")
    return here


@pytest.fixture
def write(folder: Path) -> Write:
    """Write a recipe; the answer is its path as it would be typed."""

    def written(text: str) -> str:
        (folder / "mine.yaml").write_text(text)
        return "./mine.yaml"

    return written


def refusal_of(*words: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        plan(*words)
    assert caught.value.exit_code == 78
    return caught.value


MINIMAL = "summary: mine\ncheckpoint_dir: out\n"


def test_a_recipe_by_path(write: Write) -> None:
    mine = write(
        "summary: mine\n"
        "config: '{arg:config}'\n"
        "checkpoint_dir: [['{env:SCRATCH|=/scratch}', '{config:name}', 'rank_{rank}']]\n"
        "resume_arg: ['--from={checkpoint}', '--note={arg:note|=none}']\n"
    )
    Path("train.json").write_text('{"name": "a b", "deep": {"list": [1]}}')
    words = ("--worker_num=2", "train.py", "--config=train.json", "--note={x}")
    found = plan(f"--recipe={mine}", *words).spec.recovery
    assert found.checkpoint_dirs == ("/scratch/a b/rank_0", "/scratch/a b/rank_1")
    assert found.resume_args == ("--from={checkpoint}", "--note={{x}}"), "what is looked up is no template"


def test_a_pointer_is_taken_over_as_it_stands(write: Write) -> None:
    mine = write(MINIMAL + "pointer:\n- file: latest\n  value: '{checkpoint_name}'\n")
    found = plan(f"--recipe={mine}", "train.py").spec.recovery
    assert found.pointers == (Pointer(name="latest", template="{checkpoint_name}"),)
    assert found.handed_over


@pytest.mark.parametrize(
    ("text", "what", "because"),
    [
        (MINIMAL + "resume_args: --x\n", ":3 resume_args", "the keys of a recipe are summary, "),
        (MINIMAL + "summary: again\n", ":3 summary is given twice", "it was already given in line 1"),
        ("checkpoint_dir: out\n", ":1 has no summary", "every recipe needs one"),
        ("summary: mine\n", ":1 has no checkpoint_dir", "every recipe needs one"),
        ("summary: |\n  a\n  b\ncheckpoint_dir: x\n", ":1 summary cannot be used", "it must be one line"),
        ("summary: mine\ncheckpoint_dir: []\n", ":2 checkpoint_dir cannot be used", "the list is empty"),
        ("summary: mine\ncheckpoint_dir: {checkpoint}\n", ":2", "text is needed here, not a mapping"),
        ("summary: mine\ncheckpoint_dir:\n", ":2 cannot be used", "text is needed here, not nothing"),
        ("summary: mine\ncheckpoint_dir: '{checkpoint}'\n", ":2 '", "{checkpoint} is nothing that is known"),
        (MINIMAL + "framework: jax\n", ":3 framework 'jax' cannot be used", "it is none of mindspore, torch"),
        (MINIMAL + "replica_groups: none\n", ":3 replica_groups 'none'", "it is none of auto, group_info"),
        (MINIMAL + "resume_arg: '--x={chekpoint}'\n", ":3 '--x={chekpoint}'", "there is no field {chek"),
        (MINIMAL + "resume_arg: '--x={arg:}'\n", ":3 '--x={arg:}'", "there is no field {arg:}"),
        (MINIMAL + "resume_arg: value\n", ":3 resume_arg 'value'", "an argument begins with a dash"),
        (MINIMAL + "resume_arg: [[--x]]\n", ":3 cannot be used", "text is needed here, not a list"),
        (MINIMAL + "rewrite:\n- key: x\n", ":4 rewrite cannot be used", "it has no file"),
        (MINIMAL + "rewrite: {file: a, key: x, to: 1}\n", ":3 to", "the keys of a rewrite are file, "),
        (MINIMAL + "rewrite: {file: a, key: 'x['}\n", ":3 'x[' cannot be used", ""),
        (MINIMAL + "rewrite: {file: a, key: x, value: '{rank}'}\n", ":3 rewrite", "{rank} differs"),
        (MINIMAL + "rewrite: {file: a, key: x, format: xml}\n", ":3 format 'xml'", "it is none of yaml"),
        (MINIMAL + "rewrite: {file: a, key: x, optional: 1}\n", ":3 optional '1'", "it is none of true"),
        (MINIMAL + "pointer: {file: latest}\n", ":3 pointer cannot be used", "it has no value"),
        (MINIMAL + "pointer: {file: a/latest, value: x}\n", ":3 'a/latest'", "a pointer lies beside"),
        (MINIMAL + "pointer: {file: latest, value: '{rank}'}\n", ":3 pointer", "{rank} differs"),
        (MINIMAL + "pointer: {file: latest, value: '{arg:a}'}\n", ":3 '{arg:a}'", "it holds what the rec"),
        (MINIMAL + "environment: [A=1]\n", ":3 cannot be used", "it holds a list, not a mapping"),
        (MINIMAL + "environment: {a-b: 1}\n", ":3 environment", "'a-b' is no name of a variable"),
        (MINIMAL + "environment: {A: [1]}\n", ":3 cannot be used", "text is needed here, not a list"),
        (
            MINIMAL + "environment: {A: '{checkpoint} {x}'}\n",
            ":3 '{checkpoint} {x}'",
            "there is no field {x}",
        ),
        (MINIMAL + "detect: [a-b]\n", ":3 detect 'a-b' cannot be used", "it is not a name of Python"),
        (MINIMAL + "formats: Folder!\n", ":3 formats 'Folder!' cannot be used", "it is not a format's"),
        (MINIMAL + "world_size: 4\n", ":3 world_size '4' cannot be used", "it is none of same, any"),
        (MINIMAL + "example: |\n  a\n  b\n", ":3 example cannot be used", "it must be one line"),
        ("summary: mine\n  bad: indent: here\n", ":2 is not YAML", "mapping values are not allowed here"),
        ("- a list\n", " is no recipe", "it holds a list, not a mapping"),
        ("", " is no recipe", "it holds nothing, not a mapping"),
        ("\0", ":1 is not YAML", ""),
    ],
)
def test_every_mistake_is_named_by_its_line(write: Write, text: str, what: str, because: str) -> None:
    error = refusal_of(f"--recipe={write(text)}", "train.py")
    assert error.what.startswith(f"mine.yaml{what}"), error
    assert error.because.startswith(because), error


def test_a_variable_that_holds_a_field_waits_for_a_restart_and_bare_braces_are_text(write: Write) -> None:
    mine = write(
        MINIMAL + "environment: {GO: '{TTP:1}', FROM: 'x:{checkpoint}'}\nworld_size: any\nformats: folder\n"
    )
    spec = plan(f"--recipe={mine}", "train.py", environ={"FROM": "the user's"}).spec
    assert dict(spec.environment) == {"GO": "{TTP:1}"}
    assert spec.recovery.resume_environment == (("FROM", "x:{checkpoint}"),)
    assert spec.recovery.handed_over
    assert spec.recovery.resharded
    assert spec.recovery.formats == ("folder",)


def test_an_unknown_key_that_is_nearly_one_is_pointed_out(write: Write) -> None:
    assert (
        refusal_of(f"--recipe={write(MINIMAL + 'rewrites: []')}", "train.py").hint == "did you mean rewrite?"
    )


def test_a_script_argument_that_is_missing_is_asked_for() -> None:
    error = refusal_of("--recipe=mindspore-resnet", "train.py")
    line = recipe_file("mindspore-resnet").read_text().splitlines().index("checkpoint_dir:") + 4
    assert error.what.endswith(
        f"mindspore-resnet.yaml:{line} cannot be filled in: {{arg:output_path|config:output_path}}"
    )
    assert error.because == "the script is not given --config_path"
    assert error.hint == "faultrun --recipe=mindspore-resnet SCRIPT --config_path=..."


def test_an_argument_without_a_value_is_missing() -> None:
    error = refusal_of("--recipe=pangu-alpha", "train.py", "--save_checkpoint_path", "--distribute=true")
    assert "the script is not given --save_checkpoint_path" in error.because


def test_a_value_that_the_yaml_does_not_have_is_named(folder: Path) -> None:
    (folder / "resnet.yaml").write_text("output_path: /cache\ncheckpoint_path:\npre_trained: ''\n")
    error = refusal_of("--recipe=mindspore-resnet", "train.py", "--config_path=resnet.yaml")
    assert "the training configuration has no value checkpoint_path" in error.because


def test_a_list_is_no_place_for_checkpoints(folder: Path) -> None:
    (folder / "resnet.yaml").write_text("output_path: [/cache]\ncheckpoint_path: x\n")
    error = refusal_of("--recipe=mindspore-resnet", "train.py", "--config_path=resnet.yaml")
    assert error.what == "cannot set output_path in resnet.yaml"
    assert error.because == "it holds a list, not a value"


def test_a_configuration_that_is_not_there_is_named() -> None:
    error = refusal_of("--recipe=mindspore-resnet", "train.py", "--config_path=nowhere.yaml")
    assert error.what == "nowhere.yaml is not there"


@pytest.mark.parametrize(
    ("name", "what", "hint"),
    [
        ("mindspore-resnt", "there is no recipe 'mindspore-resnt'", "--recipe=mindspore-resnet"),
        ("./nowhere.yaml", "cannot read the recipe nowhere.yaml", "faultrun recipes"),
        ("./", "cannot read the recipe .", "faultrun recipes"),
    ],
)
def test_a_recipe_that_is_not_there(name: str, what: str, hint: str) -> None:
    error = refusal_of(f"--recipe={name}", "train.py")
    assert error.what == what
    assert error.hint == hint


@given(value=st.text(), before=st.text(alphabet="ab -=/{}"))
def test_what_is_looked_up_comes_out_as_it_is(value: str, before: str) -> None:
    before = before.replace("{", "{{").replace("}", "}}")
    text = before + "{arg:a|=x}{checkpoint}"
    values = template.Values(checkpoint="/c", run_id="r", incarnation=1)
    whole = before.replace("{{", "{").replace("}}", "}") + value
    assert template.render(template.parse(filled_template(text, lambda _: value)), values) == whole + "/c"
    assert filled(before + "{arg:a|=x}", lambda _: value) == whole


def test_alternatives_are_asked_in_turn() -> None:
    asked = []
    assert filled("{arg:a|config:b|=c}", lambda one: asked.append((one.kind, one.name))) == "c"
    assert asked == [("arg", "a"), ("config", "b")]
    with pytest.raises(Unknown, match="the script is not given --a; the environment has no B"):
        filled("{arg:a|env:B}", lambda _: None)


def test_a_recipe_of_a_megabyte_is_none(folder: Path) -> None:
    (folder / "big.yaml").write_text("summary: " + "x" * (1 << 20))
    assert "larger than 1 MiB" in refusal_of("--recipe=./big.yaml", "train.py").because


@pytest.mark.long
def test_nothing_is_started_with_a_wrong_recipe(folder: Path, write: Write) -> None:
    (folder / "train.py").write_text("open('started', 'w').close()\n")
    done = faultrun(f"--recipe={write(MINIMAL + 'nonsense: 1')}", "train.py")
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.splitlines()[0] == "faultrun: mine.yaml:3 nonsense cannot be used"
    assert not (folder / "started").exists()
    assert not (folder / "faultrun_log").exists()
