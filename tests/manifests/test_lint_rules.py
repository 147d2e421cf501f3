"""Every rule of lint: what breaks it, that nothing else then complains, and what is right after all.

The starting point is a rendered manifest, which has no finding: whatever a case reports, its own change did.
"""

import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.cli.options.settings import Settings
from faultrun.manifests import rules_faultrun
from faultrun.manifests.finding import wordings
from faultrun.manifests.lint import NotAManifest, lint
from faultrun.manifests.lint_input import LintSettings
from support.manifests import CLUSTER, FIELD, Case, cases, changed, findings, rendered, rules

BROKEN = cases("lint_broken.txt")
RIGHT = cases("lint_right.txt")

CONSEQUENCES = {
    "exec-form": {"exit-codes"},
    "shell-pid-1": {"exit-codes", "pre-stop"},
    "grace-over-time": {"grace-variable"},
    "grace-period": {"grace-variable"},
    "nodes-pods": {"min-available"},
}
"""What a change may break besides its rule, because it is true as well."""


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: " ".join(case.head))
def test_a_change_for_the_worse_is_found_by_its_own_rule_and_no_other(case: Case) -> None:
    name, rule, blamed = case.head
    text = changed(rendered(*name.split()), *case.texts)
    found = findings(text)
    told = [finding.told("f.yaml") for finding in found]
    assert {one.rule for one in found} - CONSEQUENCES.get(rule, set()) == {rule}, told
    for one in found:
        if one.rule == rule:
            assert blamed in text.splitlines()[one.line - 1], told
            assert one.told("f.yaml") == f"f.yaml:{one.line}: {rule} {one.what} · {one.why} · {one.fix}"
            assert one.what and one.why and one.fix and "\n" not in one.told("f.yaml")


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: f"{case.head[0]} {case.texts[1]}")
def test_what_is_right_has_no_finding(case: Case) -> None:
    text = changed(rendered(*case.head), *case.texts)
    assert [one.told("f") for one in findings(text)] == []


def test_every_rule_is_broken_by_some_case() -> None:
    names = {name.partition("/")[0] for name in wordings()}
    elsewhere = {"pre-stop", "log-dir", "prestop-log-dir"}
    assert names - elsewhere == {case.head[1] for case in BROKEN}


def test_grace_over_time_comes_from_the_command_line_the_file_or_the_default() -> None:
    text = rendered("vcjob")
    assert rules(text, LintSettings(grace_over_time_s=600, reader=CLUSTER.reader)) == ["grace-over-time"]
    scheduler = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: volcano-scheduler-configmap}\ndata:\n"
        "  volcano-scheduler.conf: |\n    configurations:\n    - name: init-params\n"
        '      arguments: {"grace-over-time":"500"}\n'
    )
    assert rules(f"{text}---\n{scheduler}") == ["grace-over-time"]
    assert rules(f"{text}---\n{scheduler.replace('500', '5000')}") == []


@pytest.mark.parametrize("grace", ["1", "360", "600", "899"])
def test_a_period_inside_of_grace_over_time_is_right(grace: str) -> None:
    found = rules(FIELD.replace("Seconds: 900", f"Seconds: {grace}"))
    assert "grace-over-time" not in found


@pytest.mark.parametrize("label", ['"grace"', '"force"', '"off"', "null"])
def test_the_field_s_900_is_found_whatever_the_label_says(label: str) -> None:
    found = rules(FIELD.replace('fault-scheduling: "grace"', f"fault-scheduling: {label}"))
    assert found.count("grace-over-time") == 1


def test_a_label_on_the_config_map_is_not_on_the_job() -> None:
    moved = FIELD.replace('    fault-scheduling: "grace"\n', "", 1)
    moved = changed(
        moved,
        "ring-controller.atlas: ascend-910\n",
        "ring-controller.atlas: ascend-910\n    fault-scheduling: grace\n",
    )
    found = next(one for one in findings(moved) if one.rule == "fault-scheduling")
    assert (found.line, found.fix) == (8, "move it to the labels of Volcano Job resnet-8p")


@pytest.mark.parametrize("word", ["off", "none", "'false'", "disable"])
def test_what_counts_as_off_may_be_meant(word: str) -> None:
    assert "fault-scheduling" not in rules(FIELD.replace('"grace"', f'"{word.strip(chr(39))}"'))


def test_a_job_of_another_platform_has_its_own_clock() -> None:
    other = FIELD.replace("huawei.com/Ascend910", "nvidia.com/gpu")
    for line in ("ring-controller.atlas: ascend-910   # the same as above", 'fault-scheduling: "grace"'):
        other = other.replace(line, "team: vision" if "ring" in line else "tier: batch")
    other = other.replace("          ring-controller.atlas: ascend-910\n", "")
    assert "grace-over-time" not in rules(other)


def test_a_deployment_is_checked_as_far_as_it_says_that_it_trains() -> None:
    text = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, labels: {app: web}}\n"
        "spec:\n  replicas: 2\n"
        "  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n"
        '      containers:\n      - {name: web, image: nginx, command: [sh, -c, "a; b"]}\n'
    )
    assert rules(text) == []
    trains = text.replace("{app: web}}\nspec", '{app: web, fault-scheduling: "grace"}}\nspec')
    assert rules(trains) == ["shell-pid-1", "pre-stop"]
    late = trains.replace(
        "    spec:\n", "    spec:\n      schedulerName: volcano\n      terminationGracePeriodSeconds: 900\n"
    )
    assert "grace-over-time" in rules(late)


def test_a_read_only_root_needs_a_volume_for_the_log_dir() -> None:
    text = changed(
        rendered("job"),
        "resources:\n",
        "securityContext: {readOnlyRootFilesystem: true}\n          resources:\n",
    )
    assert rules(text) == []
    assert rules(changed(text, "value: /job/output/train/faultrun_log", "value: /var/log/faultrun")) == [
        "log-dir"
    ]


def test_the_hook_looks_where_the_run_is() -> None:
    text = changed(rendered("job"), "- name: FAULTRUN_LOG_DIR", "- name: SOMETHING")
    text = changed(text, "- --resume=always", "- --log_dir=/job/log\n            - --resume=always")
    assert rules(text) == ["prestop-log-dir"]
    assert rules(changed(text, "prestop]", "prestop, --log-dir=/job/log]")) == []


def test_the_variable_is_that_which_faultrun_reads() -> None:
    assert Settings.log_dir.variable == rules_faultrun.LOG_DIR_VARIABLE


def test_jobs_without_anything_to_save_may_start_a_shell() -> None:
    text = FIELD.replace('    fault-scheduling: "grace"\n', '    fault-scheduling: "force"\n')
    assert rules(text) == ["reset-label", "grace-over-time"]


def test_a_list_counts_as_its_items() -> None:
    body = "".join(f"  {line}\n" for line in rendered("job").splitlines()[1:])
    text = f"apiVersion: v1\nkind: List\nitems:\n- {body.lstrip()}"
    assert rules(text) == []
    assert rules(changed(text, "restartPolicy: Never", "restartPolicy: Always")) == ["exit-codes"]


def test_json_and_aliases_are_read() -> None:
    text = changed(rendered("vcjob"), "limits:\n                  huawei.com/Ascend910: 8", "limits: *same")
    text = changed(
        text,
        "requests:\n                  huawei.com/Ascend910: 8",
        "requests: &same\n                  huawei.com/Ascend910: 8",
    )
    assert rules(text) == []
    assert rules(changed(text, "minAvailable: 1", "minAvailable: 7")) == ["min-available"]


POD = "spec:\n  template:\n    spec:\n      containers: [{name: a, image: b}]\n"


IN_A_SHELL = f"apiVersion: batch/v1\nkind: Job\n{POD}".replace("b}", "b, command: [sh, -c, 'faultrun x.py']}")
SCRIPT_OF_A = "the shell script of container a, in which faultrun cannot be read"


@pytest.mark.parametrize(
    ("text", "unchecked"),
    [
        (rendered("vcjob", "nodes=2", "etcd_image=etcd:3.5"), ()),
        (rendered("job", "nodes=3"), ()),
        (rendered("job", "nodes=3").replace("subdomain: train", "subdomain: other"), ("Service",)),
        (f"apiVersion: apps/v1\nkind: StatefulSet\n{POD}", ()),
        (f"apiVersion: kubeflow.org/v1\nkind: MPIJob\n{POD}", ("MPIJob (all but its pods)",)),
        ("apiVersion: v1\nkind: Secret\n---\napiVersion: v1\nkind: Secret\n", ("Secret",)),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n", ("ConfigMap",)),
        ("a: 1\n---\napiVersion: v1\nkind: Secret\n", ("Secret", "what has no apiVersion and kind")),
        (IN_A_SHELL, ()),
        (IN_A_SHELL.replace("x.py", "x.py | tee log"), (SCRIPT_OF_A,)),
        (IN_A_SHELL.replace("x.py", "x.py --seed=$SEED"), (SCRIPT_OF_A,)),
    ],
)
def test_what_no_rule_looks_at_is_named_by_its_kind(text: str, unchecked: tuple[str, ...]) -> None:
    assert lint(text, CLUSTER).unchecked == unchecked


def test_an_operator_that_takes_each_code_for_final_is_named_whatever_its_kind() -> None:
    text = (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: train}\nspec:\n"
        "  pytorchReplicaSpecs:\n    Worker:\n      replicas: 2\n      restartPolicy: ExitCode\n"
        "      template:\n        spec:\n          containers:\n"
        "          - {name: pytorch, image: a, command: [faultrun, train.py]}\n"
    )
    assert [(one.rule, one.line) for one in findings(text)] == [("exit-codes", 8)]
    assert rules(text.replace("[faultrun, train.py]", "[python, train.py]")) == []
    assert rules(text.replace("ExitCode", "OnFailure")) == []


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("", "no object"),
        ("# nothing\n", "no object"),
        ("a: 1\n", "no object"),
        ("- 1\n", "no object"),
        ("just words\n", "no object"),
        ("a: [\n", "not YAML"),
        ("kind: {{ .Values.kind }}\nx: {{ y }} z\n", "Helm"),
        ("&a [*a]\n", "nested too deeply, or contains itself"),
    ],
)  # fmt: skip
def test_what_is_no_manifest_is_said_to_be_none(text: str, because: str) -> None:
    with pytest.raises(NotAManifest) as refused:
        lint(text, CLUSTER)
    assert because in refused.value.because
    assert refused.value.line >= 1


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_mutilation_of_a_manifest_makes_lint_fail(data: st.DataObject) -> None:
    lines = FIELD.splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        line, cut = lines[at], data.draw(st.integers(0, 20))
        word = data.draw(st.sampled_from(["null", "9", "[]", "{}", "'x'", "on"]))
        others = ("", f"{line}\n{line}", line[:cut], f"  {line}", re.sub(r"\w+", word, line, count=1))
        lines[at] = data.draw(st.sampled_from(others))
    with suppress(NotAManifest):
        findings("\n".join(lines))


def test_a_bomb_of_aliases_is_walked_once() -> None:
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))
    text = f"apiVersion: v1\nkind: Thing\na0: &a0 [x]\n{levels}\n"
    assert rules(text) == []


def test_a_removed_option_in_the_environment_hides_nothing_that_the_command_says() -> None:
    variable = '          env:\n            - name: FAULTRUN_TENSORBOARD\n              value: "1"\n'
    text = changed(rendered("job", "options=--stop_grace=20s"), "          env:\n", variable)
    text = text.replace("--stop_grace=20s", "--stop_grace=20m")
    assert {"faultrun-options", "stop-grace"} <= {one.rule for one in lint(text, CLUSTER).findings}
