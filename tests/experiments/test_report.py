"""Reports: statistics over seeds, figures, and a page that needs nothing else."""

import dataclasses
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pullback.experiments.records import Result, read_records
from pullback.experiments.report import chart, figures, markdown, page
from pullback.experiments.report.conclusion import conclusion
from pullback.experiments.report.summary import sections
from pullback.experiments.task import Picture
from pullback.experiments.tasks import SETUPS
from pullback.experiments.tasks.parsing import Parsing
from pullback.experiments.training import train
from small_runs import SMALL, clusters


def result(run, accuracy, *, is_done=True, failure=None, cost=1.0):
    """A run as if it had been trained, with these accuracies after each evaluation."""
    history = [
        {
            "step": 2 * (i + 1),
            "loss": 1.0,
            "seconds": cost,
            "decodings": cost,
            "validation": {"accuracy": value, "v_measure": value},
            "test": {"accuracy": value, "v_measure": value},
            "gradient": {"gradient": value, "zero_gradient": 0.5, "entropy": 1.0},
        }
        for i, value in enumerate(accuracy)
    ]
    pictures = [Picture("a picture", "<svg></svg>")]
    return Result(run, history, is_done, failure, Path("nowhere"), pictures)


def several(estimator, finals, **settings):
    return [result(clusters(estimator, seed=seed, **settings), [0.1, final]) for seed, final in enumerate(finals, 1)]


RESULTS = [
    *several("gold", [0.95, 0.95, 0.95, 0.95, 0.95]),
    *several("frozen", [0.50, 0.51, 0.52, 0.51, 0.51]),
    *several("ste", [0.90, 0.92, 0.91, 0.90, 0.92]),
    *several("sparsemap", [0.91, 0.90, 0.92, 0.89, 0.90]),
    *several("spigot", [0.49, 0.50, 0.48, 0.49, 0.49], options=(("step_size", 1.0),)),
    *several("spigot", [0.60, 0.61, 0.62, 0.61, 0.61], options=(("step_size", 0.1),)),
    *several("minimum_risk", [0.20, 0.21, 0.22, 0.21, 0.21]),
    result(clusters("spigot_eg"), [0.99], is_done=False),
    result(clusters("spigot_ce"), [], is_done=False, failure="parameters are no longer finite"),
]


@pytest.fixture
def section():
    (found,) = sections(RESULTS)
    return found


def row_of(section, label):
    return next(row for row in section.rows if row.label == label)


def test_rows_are_medians_over_seeds_and_runs_that_are_not_done_are_no_rows(section):
    assert [row.label for row in section.rows] == [
        "gold",
        "frozen",
        "ste",
        "spigot (step_size=0.1)",
        "spigot (step_size=1)",
        "sparsemap",
        "minimum_risk",
    ]
    ste = row_of(section, "ste")
    assert ste.middle("accuracy") == 0.91
    assert math.isclose(ste.error("accuracy"), 0.01 / 5**0.5)
    assert len(section.unfinished) == 2


def test_the_best_is_no_yardstick_and_ties_are_found_by_a_paired_test(section):
    best = section.best("accuracy")
    assert best.label == "ste"
    assert section.tied("accuracy", row_of(section, "sparsemap"))
    assert not section.tied("accuracy", row_of(section, "minimum_risk"))
    assert [row.label for row in section.leading] == ["ste", "sparsemap"]
    gold = section.cell(row_of(section, "gold"), "accuracy")
    assert not gold.is_best and not gold.is_tied


def test_a_constant_difference_is_a_difference():
    (section,) = sections([*several("ste", [0.9, 0.8, 0.7, 0.8, 0.8]), *several("spigot", [0.5, 0.4, 0.3, 0.4, 0.4])])
    assert not section.tied("accuracy", row_of(section, "spigot"))


def test_a_row_that_loses_with_every_seed_is_worse_though_one_seed_loses_much():
    results = [*several("ste", [0.99] * 5), *several("spigot", [0.98, 0.98, 0.98, 0.98, 0.5])]
    (section,) = sections(results)
    assert not section.tied("accuracy", row_of(section, "spigot"))


def test_less_is_worse_or_better_as_the_measure_says(section):
    ste, minimum_risk = row_of(section, "ste"), row_of(section, "minimum_risk")
    assert section._is_worse("accuracy", minimum_risk, ste) and not section._is_worse("accuracy", ste, minimum_risk)

    class Losses(type(section.task)):
        lower_is_better = ("accuracy",)

    turned = dataclasses.replace(section, task=Losses())
    assert turned._is_worse("accuracy", ste, minimum_risk) and not turned._is_worse("accuracy", minimum_risk, ste)


def test_a_best_row_with_a_failed_seed_hides_nobody_who_is_worse_than_another():
    """Nothing can be told from `ste`, but `spigot` is worse than `sparsemap`, which is nearly as good."""
    results = [*several("ste", [1.0, 1.0, 1.0, 1.0, 0.5]), *several("sparsemap", [0.99, 0.98, 0.99, 0.98, 0.99])]
    results += several("spigot", [0.51, 0.52, 0.50, 0.51, 0.52])
    (section,) = sections(results)
    assert [row.label for row in section.leading] == ["ste", "sparsemap"]


def test_three_seeds_are_too_few_for_a_test_and_the_report_says_so():
    results = [*several("ste", [0.9, 0.8, 0.8]), *several("spigot", [0.5, 0.9, 0.7])]
    (section,) = sections(results)
    assert not section.tied("accuracy", row_of(section, "spigot"))
    assert conclusion(section) == (
        "ste is best with accuracy 80.0 %, the median of 3 seeds (too few seeds for a test)."
    )
    assert "Best in bold; too few seeds for a test." in page.html(results, [])


def test_marks_sentence_and_pictures_choose_from_the_same_rows():
    """The setting of an estimator that is best on test data, but not on validation data, is no best row anywhere."""
    lucky = [
        dataclasses.replace(one, records=[{**one.records[-1], "test": {"accuracy": 0.99, "v_measure": 0.99}}])
        for one in several("spigot", [0.6] * 5, options=(("step_size", 0.1),))
    ]
    results = [*several("spigot", [0.7] * 5), *lucky, *several("ste", [0.8] * 5)]
    (section,) = sections(results)
    best = [row.label for row in section.rows if section.cell(row, "accuracy").is_best]
    assert best == ["ste"] == [section.ranked[0].label]
    assert conclusion(section).startswith("ste is best with accuracy 80.0 %")
    assert re.search(r"<details open><summary>ste, seed", page.html(results, []))


def test_a_row_of_which_a_seed_has_failed_is_not_best_and_says_so():
    lost = dataclasses.replace(several("ste", [0.9, 0.99])[1], is_done=False, failure="no longer finite")
    (section,) = sections([several("ste", [0.9, 0.99])[0], lost, *several("spigot", [0.5, 0.4])])
    assert row_of(section, "ste").seeds == "1 of 2" and row_of(section, "spigot").seeds == "2"
    assert section.best("accuracy").label == "spigot"


def test_a_row_with_fewer_seeds_than_others_is_not_best():
    (section,) = sections([*several("ste", [0.9, 0.8, 0.7]), *several("spigot", [0.99])])
    assert section.best("accuracy").label == "ste" and not section.cell(row_of(section, "spigot"), "accuracy").is_best
    assert conclusion(section).startswith("ste is best")


def test_the_conclusion_says_why_nothing_is_best():
    (section,) = sections(several("gold", [0.9]) + several("frozen", [0.5, 0.6, 0.7]))
    assert conclusion(section) == (
        "Yardsticks only: accuracy is 90.0 % with gold, of a single seed; 60.0 % with frozen, the median of 3 seeds."
    )
    lost = dataclasses.replace(several("ste", [0.9, 0.9])[1], is_done=False, failure="no longer finite")
    (section,) = sections([several("ste", [0.9])[0], lost])
    assert conclusion(section) == "With every estimator, training failed for some seed."
    (section,) = sections([dataclasses.replace(lost, failure=None)])
    assert conclusion(section) == "No estimator has finished yet."


def test_setups_of_one_task_have_tables_of_their_own():
    ours, published = (dataclasses.replace(SETUPS[name], seed=1) for name in ("clusters", "clusters-published"))
    toy = dataclasses.replace(SETUPS["subset"], seed=1)
    found = sections([result(toy, [0.5]), result(published, [0.8]), result(ours, [0.9])])
    assert [section.title for section in found] == ["clusters", "clusters-published", "subset"]  # as in SETUPS


def test_the_page_names_the_versions_that_trained_the_runs():
    old = dataclasses.replace(several("ste", [0.9])[0], version="0.0.1")
    assert "with pullback 0.0.1 and 0.1.0." in page.html([old, *several("spigot", [0.5])], [])


def test_a_measure_that_only_describes_has_no_winner():
    def review(estimator, depth):
        run = dataclasses.replace(SMALL["polarity"], estimator=estimator)
        made = result(run, [0.0])
        both = {"accuracy": depth / 10, "depth": depth}
        return dataclasses.replace(made, records=[{**made.records[0], "test": both, "validation": both}])

    (section,) = sections([review("ste", 2.0), review("spigot", 3.0)])
    assert section.winner("accuracy").label == "spigot" and section.winner("depth") is None


def test_the_conclusion_says_what_the_table_shows(section):
    assert conclusion(section) == (
        "ste is best with accuracy 91.0 %, the median of 5 seeds, with settings chosen on validation data (the true "
        "structure gives 95.0 %); not significantly different (paired tests): sparsemap.  "
        "minimum_risk does no better than an untrained encoder."
    )


def test_the_conclusion_names_what_is_better_without_having_learned():
    """The best estimator of a table is no success where a rule that knows nothing does as well."""
    (found,) = sections([*several("ste", [0.8, 0.9]), *several("single", [0.9, 0.9]), *several("random", [0.7, 0.7])])
    assert conclusion(found) == (
        "ste is best with accuracy 85.0 %, the median of 2 seeds (single, which is not learned, gives 90.0 %)."
    )


def test_a_set_up_stands_before_its_variants_which_say_what_they_are():
    typed = dataclasses.replace(SMALL["listops"], task=SETUPS["listops"].task)
    untyped = dataclasses.replace(typed, task=dataclasses.replace(typed.task, typed=False))
    titles = [found.title for found in sections([result(untyped, [0.5]), result(typed, [0.5])])]
    assert titles == ["listops, steps 4", "listops, not typed, steps 4"]


def test_names_of_rows_are_broken_at_underscores_alone():
    assert '<th scope="row">spigot_<wbr>ce</th>' in page.html(several("spigot_ce", [0.9]), [])


def test_no_curve_has_the_gray_of_yardsticks():
    style = (Path(page.__file__).parent / "page.css").read_text()
    for scheme in style.split("prefers-color-scheme:dark"):
        colors = {name: bytes.fromhex(color) for name, color in re.findall(r"--(\w+):#(\w{6})\b", scheme)}
        for number in range(chart.COLORS):
            assert math.dist(colors["soft"], colors[f"c{number}"]) > 60


def test_settings_of_an_estimator_are_chosen_on_validation_data(section):
    assert "spigot (step_size=0.1)" in [row.label for row in section.chosen()]


def test_a_measure_that_should_be_low_is_best_where_it_is_low():
    def toy(estimator, gap):
        run = dataclasses.replace(SMALL["subset"], estimator=estimator)
        made = result(run, [0.0])
        record = {**made.records[0], "test": {"gap": gap}, "validation": {"gap": gap}}
        return dataclasses.replace(made, records=[record])

    (section,) = sections([toy("ste", 0.5), toy("spigot", 0.25)])
    assert section.best("gap").label == "spigot" and "spigot is best with gap 0.25" in conclusion(section)


def test_settings_that_tell_rows_apart_stand_in_one_table():
    def parser(projective, hidden):
        run = dataclasses.replace(SMALL["parsing"], task=Parsing(hidden=hidden, projective=projective))
        made = result(run, [0.0])
        return dataclasses.replace(made, records=[{**made.records[0], "test": {"uas": 0.5}}])

    first, second = sections([parser(False, 8), parser(True, 8), parser(True, 9)])
    assert [row.label for row in first.rows] == ["crf (projective=False)", "crf (projective=True)"]
    assert (
        first.title == "parsing, hidden 8, steps 4"
        and second.title == "parsing, hidden 9, steps 4"
        and len(second.rows) == 1
    )


class Links(HTMLParser):
    """Where a page points to, what it can be pointed at, and tags that are not closed."""

    VOID = ("meta", "wbr", "link", "line", "circle", "polygon", "br", "rect", "path")

    def __init__(self):
        super().__init__()
        self.links, self.names, self.open = set(), set(), []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.links |= {found[name] for name in ("href", "src") if name in found}
        self.names |= {found["id"]} if "id" in found else set()
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_stands_alone_and_every_number_leads_to_its_settings():
    text = page.html(RESULTS, ["runs/x: torn <line>"])
    read = Links()
    read.feed(text)
    assert read.open == []
    assert all(link.startswith("#") or link == "data:," for link in read.links)
    assert {link[1:] for link in read.links if link.startswith("#")} <= read.names
    assert "http://" not in text and "https://" not in text and "<script" not in text and "@import" not in text
    assert re.search("pullback run clusters(-published)? --estimator spigot", text) and "--set step_size=0.1" in text
    assert "torn &lt;line&gt;" in text and "stopped at step 2 of 4" in text and "no longer finite" in text
    assert "prefers-color-scheme:dark" in text and "width=device-width" in text
    assert len(text) < 100_000


def test_the_page_has_curves_costs_sensitivity_and_pictures():
    text = page.html(RESULTS, [])
    for caption in ("While training", "Quality against evaluations", "Quality against seconds", "step size"):
        assert caption in text
    assert "a picture" in text and text.count('class="chart"') >= 5


def test_diagnostics_are_those_that_an_inspection_gives(tmp_path):
    run = clusters("spigot")
    train(run, tmp_path)
    (record, *_), _ = read_records(tmp_path / run.key / "records.jsonl")
    assert figures.DIAGNOSTICS.keys() <= record["gradient"].keys()
    text = page.html(RESULTS, [])
    for name in ("gradient", "zero_gradient", "entropy"):
        label, caption = figures.DIAGNOSTICS[name]
        assert f">{label}</text>" in text and caption in text


def test_step_sizes_that_have_names_stand_beside_those_that_are_numbers():
    results = [
        *several("spigot", [0.5, 0.6], options=(("step_size", 0.1),)),
        *several("spigot", [0.6, 0.7], options=(("step_size", "relative"),)),
        *several("spigot", [0.7, 0.8]),
        *several("ste", [0.7, 0.8]),
    ]
    (section,) = sections(results)
    ((_, drawn),) = figures._sensitivity(section)
    assert re.search('<text class="tick"[^>]*>relative</text>', drawn)
    assert (
        "spigot, relative: 65" in drawn and drawn.count("<polyline") == 1
    )  # ste has one size: there is nothing to see
    assert len(re.search('<polyline[^>]*points="([^"]*)"', drawn)[1].split()) == 2  # 0.1, and 1 if nothing is said


def test_what_a_row_has_that_its_set_up_has_not_is_told():
    results = several("spigot", [0.5, 0.6], noise=0.5) + several("reinforce", [0.6, 0.7], options=(("samples", 4),))
    (section,) = sections(results)
    assert [row.label for row in section.rows] == ["spigot (noise=0.5)", "reinforce (samples=4)"]


def test_rows_of_unlike_budgets_say_so_and_are_not_held_against_each_other():
    results = [
        *several("gold", [0.9, 0.9], steps=6),
        *several("frozen", [0.8, 0.8], steps=6),
        *several("ste", [0.6, 0.7]),
        *several("sparsemap", [0.5, 0.5], steps=6),
    ]
    (section,) = sections(results)
    assert [row.label for row in section.rows] == [
        "gold (steps=6)",
        "frozen (steps=6)",
        "ste (steps=4)",
        "sparsemap (steps=6)",
    ]
    assert conclusion(section) == (
        "ste (steps=4) is best with accuracy 65.0 %, the median of 2 seeds (too few seeds for a test)."
    )


def test_a_row_with_fewer_seeds_is_not_best_and_the_sentence_says_so():
    (section,) = sections(several("ste", [0.6, 0.7]) + several("sparsemap", [0.9]))
    assert conclusion(section) == (
        "ste is best with accuracy 65.0 %, the median of 2 seeds (rows with fewer seeds are not ranked)."
    )


def test_options_of_an_estimator_are_not_taken_for_settings_of_the_same_name():
    results = several("spigot", [0.5, 0.6], options=(("steps", 3),)) + several("spigot", [0.6, 0.7])
    (section,) = sections(results)
    assert [row.label for row in section.rows] == ["spigot (steps=1)", "spigot (steps=3)"]
    text = page.html(results, [])
    assert "In common: noise 0, noise until 0, steps 4," in text
    assert "options of spigot: step size 1, steps 3, backtrack False" in text


def test_pictures_are_those_of_the_best_the_worst_and_yardsticks():
    names = ["random", "gold", "frozen", "ste", "spigot", "sparsemap", "entmax", "blackbox", "identity", "imle"]
    text = page.html([one for i, name in enumerate(names) for one in several(name, [0.1 * i] * 2)], [])
    shown = re.findall(r"<summary>(\w+), seed", text)
    assert shown == ["imle", "identity", "blackbox", "spigot", "ste", "gold", "frozen"]
    assert "Pictures of 3 more rows are left out" in text


def test_pictures_that_would_make_the_page_too_large_are_left_out_and_counted():
    large = Picture("large", f"<svg>{'ä' * 450_000}</svg>")  # two bytes each
    names = ("gold", "ste", "spigot", "sparsemap")
    results = [dataclasses.replace(one, pictures=[large]) for name in names for one in several(name, [0.5, 0.6])]
    toy = dataclasses.replace(result(SMALL["subset"], [0.5]), pictures=[Picture("small", "<svg>small</svg>")])
    gap = [{**record, "validation": {"gap": 0.5}, "test": {"gap": 0.5}} for record in toy.records]
    text = page.html([*results, dataclasses.replace(toy, records=gap)], [])
    assert len(text.encode()) < 3_000_000
    assert text.count("<svg>äää") == 2 and "Pictures of 2 more rows are left out" in text
    assert "<svg>small" in text  # sections take turns, so that a large one leaves room for others


def test_only_a_few_bands_are_drawn_over_one_another():
    names = ["gold", "frozen", "random", "ste", "spigot", "sparsemap", "entmax", "blackbox", "identity", "imle"]
    (section,) = sections([one for i, name in enumerate(names) for one in several(name, [0.1 * i, 0.1 * i + 0.1])])
    ((_, drawn),) = figures._curves(section)
    assert drawn.count("<polyline") == 9 and drawn.count("<polygon") == 5  # gold, frozen and the best three


def test_dots_of_one_color_look_unlike():
    named = [(f"estimator {i}", 1.0 + i, float(i), i) for i in range(4 * chart.COLORS)]
    drawn = re.findall(r'<(circle|rect) class="(dot c0[^"]*)"', chart.points("title", named, "x", "y"))
    assert drawn == [
        ("circle", "dot c0"),
        ("circle", "dot c0 again1"),
        ("rect", "dot c0 again2"),
        ("rect", "dot c0 again3"),
    ]
    assert ".dot.again1,.dot.again3{fill:var(--paper)" in page.html([], [])


def test_a_constant_is_said_once_and_has_no_column():
    def expression(estimator, accuracy):
        made = result(dataclasses.replace(SMALL["listops"], estimator=estimator), [0.0])
        both = {"accuracy": accuracy, "flat_uas": 0.25}
        return dataclasses.replace(made, records=[{**made.records[0], "test": both, "validation": both}])

    results = [expression("ste", 0.5), expression("spigot", 0.75)]
    (section,) = sections(results)
    assert section.measures == ["accuracy"]
    for text in (page.html(results, []), markdown.markdown(results)):
        assert text.count("In every row, flat uas is 25.0 %.") == 1


def test_the_first_table_has_a_line_for_each_task_with_the_best_between_its_yardsticks():
    text = page.html([*RESULTS, result(SMALL["polarity-bilstm"], [0.5])], [])
    first, second = re.findall("<tr>(.*?)</tr>", text[: text.index("</nav>")])[1:]
    cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall("<t[hd].*?</t[hd]>", first)]
    assert cells == [
        "clusters-published, features 8, steps 4 accuracy",
        "ste = 1 more",
        "91.0 %",
        "95.0 %",
        "51.0 %",
        "5",
    ]
    assert [re.sub("<[^>]*>", "", cell) for cell in re.findall("<td>.*?</td>", second)] == ["", "", "", "50.0 %", "1"]
    assert text.count('href="#s0"') == 1 and 'id="s0"' in text


def test_every_number_of_a_table_is_a_link():
    text = page.html(RESULTS, [])
    cells = re.findall("<td>(.*?)</td>", text)
    assert len(cells) > 30 and all(cell.startswith('<a href="#') for cell in cells if re.match(r"[\d<]", cell))


def test_axes_have_round_ticks_and_room_for_all_values():
    linear = chart.axis([0.0, 97.0], 0, 100)
    assert linear.ticks == [0, 20, 40, 60, 80, 100]
    logarithmic = chart.axis([0.1, 100.0], 0, 200, log=True)
    assert [round(tick, 6) for tick in logarithmic.ticks] == [0.1, 1, 10, 100]
    assert 0 < logarithmic(0.1) < logarithmic(1) < logarithmic(100) < 200
    shown = [chart._number(tick) for tick in (0.0, 1.5e-5, 1e-4, 1e-3, 0.25, 3000.0)]
    assert shown == ["0", "1.5e-5", "1e-4", "0.001", "0.25", "3000"]
    for values in ([5.0], [0.0, 0.0], [float("nan"), 1.0], []):
        assert chart.axis(values, 0, 100).ticks and chart.axis(values, 0, 100, log=True).ticks
    for values in ([1.0, 2.0], [13.0, 41.0], [0.001, 5.0]):
        assert 3 <= len(chart.axis(values, 0, 200, log=True).ticks) <= 7


def test_tables_as_markdown_have_the_numbers_marks_and_sentence_of_the_section(section):
    lines = markdown.markdown(RESULTS).splitlines()
    assert lines[0] == f"### {section.title}"
    assert conclusion(section) in lines[2]
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in lines if line.startswith("| ")}
    assert rows["*gold*"][0] == "95.0 ± 0.0"  # a yardstick is never the best
    assert rows["ste"][0] == "**91.0 ± 0.4**"
    assert rows["sparsemap"][0] == "90.0 ± 0.5 ="
    assert rows["minimum_risk"][0] == "21.0 ± 0.3"
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1


def test_tables_have_the_worst_and_the_best_seed_beside_the_median():
    """A seed that failed does not move a median."""
    results = [*several("ste", [0.9, 0.2, 0.9]), *several("spigot", [0.8, 0.8, 0.8]), *several("sparsemap", [0.7])]
    (section,) = sections(results)
    assert [section.spread(row) for row in section.rows] == ["20.0 to 90.0", "80.0", ""]
    assert section.cell(row_of(section, "ste"), "accuracy").value == "90.0"
    lines = [line for line in markdown.markdown(results).splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[-1] for line in lines[:1] + lines[2:]] == [
        "accuracy, worst to best |",
        "20.0 to 90.0 |",
        "80.0 |",
        " |",
    ]
    text = page.html(results, [])
    assert "<th>accuracy, worst to best</th>" in text
    assert re.search(r'<td><a href="#[^"]*">20\.0 to 90\.0</a></td>', text)


def test_the_worst_seed_is_the_largest_where_low_is_good():
    def toy(seed, gap):
        made = result(dataclasses.replace(SMALL["subset"], seed=seed), [0.0])
        return dataclasses.replace(
            made, records=[{**made.records[0], "test": {"gap": gap}, "validation": {"gap": gap}}]
        )

    (section,) = sections([toy(1, 0.25), toy(2, 0.5)])
    assert section.spread(section.rows[0]) == "0.5 to 0.25"


def test_where_many_are_tied_the_sentence_says_how_many_and_which_are_not():
    names = ["ste", "sparsemap", "entmax", "simple", "blackbox", "identity", "perturbed"]
    tied = [one for i, name in enumerate(names) for one in several(name, [0.9, 0.8, 0.75 - 2e-3 * i, 0.7, 0.7])]
    (found,) = sections([*tied, *several("spigot", [0.5, 0.4, 0.3, 0.3, 0.3])])
    assert conclusion(found) == (
        "7 of 8 estimators cannot be told apart, with accuracy from 73.8 to 75.0 % (ste is ahead), medians of 5 seeds; "
        "significantly worse: spigot."
    )


def test_estimators_with_the_same_median_are_all_named_best():
    (found,) = sections(
        [*several("ste", [0.9, 0.8]), *several("sparsemap", [0.8, 0.9]), *several("spigot", [0.5, 0.4])]
    )
    assert conclusion(found).startswith("ste and sparsemap are best with accuracy 85.0 %")


def test_names_of_points_are_inside_the_drawing_and_meet_neither_each_other_nor_a_point():
    named = [(f"estimator {i}", 1.0 + i % 3, 90 - 0.01 * i, i) for i in range(30)]
    svg = chart.points("title", named, "x", "y", log_x=True)
    texts = [
        (float(x), float(y) + 3 - chart.LINE, name)
        for x, y, name in re.findall(r'<text class="c\d[^"]*" x="([\d.]+)" y="([\d.]+)">(estimator \d+)<', svg)
    ]
    dots = [(float(x), float(y)) for x, y in re.findall(r'<circle [^>]*cx="([\d.]+)" cy="([\d.]+)"', svg)]
    dots += [(float(x) + 5, float(y) + 5) for x, y in re.findall(r'<rect [^>]*x="([\d.]+)" y="([\d.]+)"', svg)]
    assert len(dots) == 30 and 3 <= len(texts) < 30 and texts[0][2] == "estimator 0"
    boxes = [chart.Box(x, y, x + chart.LETTER * len(name), y + chart.LINE) for x, y, name in texts]
    points = [chart.Box(x - 3, y - 3, x + 3, y + 3) for x, y in dots]
    for i, box in enumerate(boxes):
        assert box.left >= 0 and box.right <= chart.WIDTH and box.bottom <= chart.HEIGHT - chart.BOTTOM + chart.LINE
        assert not any(box.meets(other) for other in boxes[:i] + points)
