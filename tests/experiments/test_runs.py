"""A run is a value: it has a key, knows its own mistakes, and can be written down and read back."""

import dataclasses
import json
import shlex

import pytest

from pullback.experiments.mistakes import Mistake
from pullback.experiments.run import Optimizer, Run
from pullback.experiments.sweep import cells
from pullback.experiments.tasks import setup_of
from small_runs import SETUPS, SMALL, TASKS, clusters


def test_the_same_run_has_the_same_key_and_any_other_another():
    run = clusters(options=(("step_size", 0.5), ("steps", 2)))
    others = [
        clusters(),
        clusters(options=(("step_size", 0.5),)),
        dataclasses.replace(run, seed=2),
        dataclasses.replace(run, noise=0.5),
        dataclasses.replace(run, optimizer=Optimizer(batch_size=49)),
        run.with_setting("features", 9),
        run.with_setting("learning_rate", 0.5),
    ]
    again = clusters(options=(("steps", 2), ("step_size", 0.5)))
    assert again == run and again.key == run.key
    assert len({run.key, *(other.key for other in others)}) == 1 + len(others)


def test_a_whole_number_may_have_a_point():
    assert clusters(options=(("step_size", 10.0),)).key == clusters(options=(("step_size", 10),)).key


def test_a_key_does_not_depend_on_the_process_that_asks():
    assert Run(SETUPS["clusters"].task, "ste").key == "clusters-ste-s1-fc2f624bf4"


@pytest.mark.parametrize("name", SETUPS)
def test_a_run_survives_being_written_down(name):
    run = dataclasses.replace(SETUPS[name], seed=7)
    if "spigot" in run.task.estimators():
        run = dataclasses.replace(run, estimator="spigot", options=(("step_size", 0.5),))
    assert Run.from_dict(json.loads(json.dumps(run.to_dict())), TASKS) == run


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"estimator": "spigott"}, "'spigott' is not known; did you mean 'spigot'?"),
        ({"options": (("step_sise", 1.0),)}, "option 'step_sise' is not known; did you mean 'step_size'?"),
        ({"options": (("step_size", -1.0),)}, "step_size is -1.0; expected a finite number ≥ 0"),
        ({"estimator": "gold", "options": (("step_size", 1.0),)}, "gold: option 'step_size' is not known"),
        ({"estimator": "reinforce", "options": (("baseline", "leave_one"),)}, "leave_one_out"),
        ({"steps": 0}, "steps is 0; expected an integer ≥ 1"),
        ({"noise": -1.0}, "noise is -1.0"),
        ({"noise": 1.0, "noise_until": 1.5}, "noise_until is 1.5; expected a share of the steps"),
    ],
)
def test_a_mistake_is_found_before_anything_is_trained(change, message):
    with pytest.raises(Mistake) as found:
        clusters(**change)
    assert message in str(found.value)


@pytest.mark.parametrize(
    ("setup", "setting", "value"),
    [
        ("clusters", "decay", "linear"),
        ("clusters", "algorithm", "rmsprop"),
        ("tagging", "transitions", "some"),
        ("vae", "latent", "choice"),
        ("digits", "latent", "match"),
        ("rationales", "choice", "span"),
    ],
)
def test_a_word_that_is_none_of_the_choices_is_refused(setup, setting, value):
    with pytest.raises(Mistake, match=f"{setting} is '{value}'; expected one of "):
        SETUPS[setup].with_setting(setting, value)


def test_only_methods_that_pull_labels_back_take_noise():
    assert clusters("ste", noise=1.0).noise == 1
    for name in ("minimum_risk", "gold", "structured_attention", "ste_marginals"):  # the last two have other names then
        assert clusters(name, noise=1.0).noise == 0
    with pytest.raises(Mistake, match="sparsemap takes no noise of the run"):
        cells(clusters("ste"), ["sparsemap(noise=1)"], 1, [])


def test_an_axis_of_a_grid_is_given_once():
    with pytest.raises(Mistake, match="step_size is given twice"):
        cells(clusters("spigot"), ["spigot"], 1, ["step_size=1", "step_size=2"])


def test_noise_falls_in_a_line_to_nothing_or_stays():
    run = clusters("ste", noise=2.0, noise_until=0.5, steps=8)
    assert [run.noise_at(step) for step in range(8)] == [2.0, 1.5, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0]
    assert {clusters("ste", noise=2.0).noise_at(step) for step in range(8)} == {2.0}
    assert clusters("gold", noise=2.0, noise_until=0.5) == clusters("gold")  # a row without noise has none to fall


def test_a_file_of_another_task_or_with_other_settings_is_named():
    described = clusters().to_dict()
    with pytest.raises(Mistake, match="task 'clusterz' is not known; did you mean 'clusters'"):
        Run.from_dict({**described, "task": {"name": "clusterz"}}, TASKS)
    with pytest.raises(Mistake, match="setting 'sed' is not known; did you mean 'seed'"):
        Run.from_dict({**described, "sed": 1}, TASKS)


@pytest.mark.parametrize("name", SETUPS)
def test_every_run_knows_the_set_up_and_the_command_that_repeat_it(name):
    assert setup_of(SETUPS[name]) == name
    for estimator in SETUPS[name].task.estimators():  # one without noise, perhaps
        assert setup_of(dataclasses.replace(SETUPS[name], estimator=estimator, seed=301)) == name
    run = dataclasses.replace(SETUPS[name].with_setting("learning_rate", 0.5), seed=9)
    words = shlex.split(run.command(name, SETUPS[name]))
    assert words == ["pullback", "run", name, "--estimator", run.estimator, "--seed", "9", "--learning-rate", "0.5"]


def test_the_command_of_a_run_has_the_options_of_its_estimator():
    words = shlex.split(clusters("spigot").with_option("step_size", 0.25).command("clusters", SETUPS["clusters"]))
    assert words[-2:] == ["--set", "step_size=0.25"]


def test_an_option_that_says_what_the_estimator_does_anyway_makes_no_other_run():
    run = clusters("spigot")
    assert run.with_option("step_size", 1) == run == run.with_option("steps", 1).with_option("backtrack", False)
    assert run.with_option("step_size", 0.5).with_option("step_size", 1.0).key == run.key
    assert run.every_option() == {"step_size": 1.0, "steps": 1, "backtrack": False}
    with pytest.raises(Mistake, match="backtrack is 0; expected true or false"):
        run.with_option("backtrack", 0)


# ---- cells of a sweep


def test_a_sweep_is_every_row_with_every_value_and_seed():
    runs = cells(SMALL["clusters"], ["ste", "sparsemap"], 2, ["step_size=0.1,1", "features=8,9"])
    assert len(runs) == 2 * 2 * 2 + 2 * 2  # sparsemap has no step size: one cell for both
    assert {run.every_option()["step_size"] for run in runs if run.estimator == "ste"} == {0.1, 1}
    assert {run.seed for run in runs} == {1, 2} and {run.task.features for run in runs} == {8, 9}


def test_a_row_may_have_options_and_settings_of_its_own():
    (run,) = cells(SMALL["clusters"], ["spigot(step_size=0.5, noise=1)"], 1, [])
    assert run.options == (("step_size", 0.5),) and run.noise == 1.0


def test_an_option_that_no_estimator_has_is_a_mistake():
    with pytest.raises(Mistake, match="did you mean 'temperature'"):
        cells(SMALL["clusters"], ["sparsemap"], 1, ["temprature=1"])
    with pytest.raises(Mistake, match="expected something like"):
        cells(SMALL["clusters"], ["sparsemap"], 1, ["features=many"])
    with pytest.raises(Mistake, match="not an assignment"):
        cells(SMALL["clusters"], ["sparsemap"], 1, ["temperature"])


def test_a_name_with_two_meanings_is_no_axis_of_a_grid():
    with pytest.raises(Mistake, match=r'steps is an option of spigot and a setting of the run; write "spigot\(steps=…'):
        cells(SMALL["clusters"], ["ste_marginals", "spigot"], 1, ["steps=1,2"])
    two, other = cells(SMALL["clusters"], ["spigot(steps=2)", "gold(steps=3)"], 1, [])
    assert dict(two.options) == {"steps": 2} and two.steps == SMALL["clusters"].steps and other.steps == 3


def test_a_run_is_the_same_wherever_its_data_are():
    here, there, sample = (
        dataclasses.replace(SMALL["polarity"], task=dataclasses.replace(SMALL["polarity"].task, data_folder=folder))
        for folder in ("data", "elsewhere/data", "")
    )
    assert here.key == there.key != sample.key
    assert "--data-folder FOLDER" in here.command("polarity", SETUPS["polarity"])


def test_rows_of_a_supervised_task_are_losses_without_options_or_noise():
    runs = cells(SMALL["parsing"], ["crf", "sparsemap"], 1, ["projective=false,true"])
    assert {(run.estimator, run.task.projective) for run in runs} == {
        (name, projective) for name in ("crf", "sparsemap") for projective in (False, True)
    }
    assert dataclasses.replace(SMALL["parsing"], estimator="sparsemap", noise=1.0).noise == 0
    with pytest.raises(Mistake, match="sparsemap: option 'temperature' is not known"):
        SMALL["parsing"].with_setting("estimator", "sparsemap").with_option("temperature", 2.0)
    with pytest.raises(Mistake, match="parsing: estimator 'spigot' is not known"):
        SMALL["parsing"].with_setting("estimator", "spigot")
