"""The report in a real browser: wide and narrow, light and dark, without a complaint of the browser."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pullback.experiments import records
from pullback.experiments.report import page
from pullback.experiments.sweep import cells
from pullback.experiments.training import train
from small_runs import SMALL, TASKS

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
WIDTHS = {"desk": 1280, "phone": 390}
SCHEMES = {"light": 1, "dark": 0}  # as the browser numbers them

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no browser: the report was not looked at (apt-get install chromium)"
)

# The report in frames of both widths; what is measured in them is written into the page, which the browser prints.
AROUND = """<!doctype html><html><head><link rel="icon" href="data:,"></head><body>{frames}<pre id="found"></pre>
<script>
function rgb(color) {{ return color.match(/[0-9.]+/g).slice(0, 3).map(Number) }}
function measure(frame) {{
  const inside = frame.contentDocument, view = frame.contentWindow, root = inside.documentElement
  const style = view.getComputedStyle(inside.body)
  const charts = [...inside.querySelectorAll("svg.chart")]
  const sizes = charts.flatMap(svg => [...svg.querySelectorAll("text")].map(text =>
    parseFloat(view.getComputedStyle(text).fontSize) * svg.clientWidth / svg.viewBox.baseVal.width))
  const outside = charts.flatMap(svg => [...svg.querySelectorAll("text")].filter(text => {{
    const box = text.getBoundingClientRect(), paper = svg.getBoundingClientRect()
    return box.left < paper.left - 1 || box.right > paper.right + 1 || box.bottom > paper.bottom + 1
  }}).map(text => text.textContent))
  const beyond = [...inside.querySelectorAll("body *")].filter(one => !one.closest(".scroll") && !one.closest("svg") &&
    one.getBoundingClientRect().right > root.clientWidth + 1).map(one => one.tagName + " " + one.className)
  return {{width: root.clientWidth, needed: root.scrollWidth, ink: rgb(style.color), paper: rgb(style.backgroundColor),
    charts: charts.length, smallest: Math.min(...sizes), outside: outside, beyond: beyond,
    tables: inside.querySelectorAll("table").length}}
}}
window.addEventListener("load", () => {{
  const found = {{}}
  for (const frame of document.querySelectorAll("iframe")) found[frame.id] = measure(frame)
  document.getElementById("found").textContent = JSON.stringify(found)
}})
</script></body></html>"""


@pytest.fixture(scope="module", params=["of every task", "published"])
def report(request, tmp_path_factory):
    """A page about every task, with runs that were trained and one that was not finished; and the published one."""
    if request.param == "published":
        return (Path(__file__).parents[2] / "results" / "report.html").read_text("utf-8")
    folder = tmp_path_factory.mktemp("runs")
    for run in SMALL.values():
        for cell in cells(run, [run.task.estimators()[0], run.estimator], 1, []):
            train(cell, folder)
    for cell in cells(SMALL["clusters"], ["structured_attention", "spigot"], 2, ["step_size=0.1,relative,polyak"]):
        train(cell, folder)
    results, complaints = records.read(folder, TASKS)
    assert complaints == []
    results[0].folder.joinpath("done").unlink()
    made = page.html(*records.read(folder, TASKS))
    assert made.count('<section id="') == len(SMALL) and made.count('class="chart"') >= 3 * len(SMALL)
    return made


def look_at(report, scheme, folder):
    """What is measured in frames of both widths, and what the browser complains about."""
    frames = "".join(
        f'<iframe id="{name}" style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(report)}"></iframe>'
        for name, width in WIDTHS.items()
    )
    file = folder / "around.html"
    file.write_text(AROUND.format(frames=frames), encoding="utf-8")
    command = [
        *(BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
        *(
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
            f"--user-data-dir={folder}/user",
        ),
        *("--enable-logging=stderr", "--v=0", f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"),
        *("--window-size=1400,1000", "--virtual-time-budget=10000", "--dump-dom", file.as_uri()),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=300)
    found = re.search(r'<pre id="found">(\{.*\})</pre>', shown.stdout)
    assert found, shown.stderr[-3000:]
    return json.loads(html.unescape(found[1])), [line for line in shown.stderr.splitlines() if "CONSOLE" in line]


def brightness(color):
    """Relative luminance, from 0 to 1."""
    parts = [part / 255 for part in color]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_report_can_be_read_at_a_desk_and_on_a_phone(scheme, report, tmp_path):
    found, complaints = look_at(report, scheme, tmp_path)
    assert complaints == []
    for name, width in WIDTHS.items():
        seen = found[name]
        assert seen["width"] == width and seen["needed"] <= width and seen["beyond"] == []  # nobody scrolls sideways
        assert seen["tables"] == report.count("<table") and seen["charts"] == report.count('class="chart"')
        assert seen["outside"] == [] and seen["smallest"] >= 9.5
        dark, bright = sorted([brightness(seen["ink"]), brightness(seen["paper"])])
        assert (bright + 0.05) / (dark + 0.05) > 7
        assert (brightness(seen["paper"]) > brightness(seen["ink"])) == (scheme == "light")


def test_a_page_that_scrolls_sideways_or_complains_is_noticed(tmp_path):
    page = '<body><div style="width:2000px">wide</div><script>console.error("no")</script></body>'
    found, complaints = look_at(page, "light", tmp_path)
    assert found["phone"]["needed"] >= 2000 and found["desk"]["beyond"] == ["DIV "]
    assert len(complaints) == len(WIDTHS)
