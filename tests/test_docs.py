"""What the pages say is true: their examples run, and the files they show or link to exist."""

import doctest
import logging
import re
import runpy
from pathlib import Path

import pytest
import torch

import pullback
from pullback.experiments import tasks

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
TEXTS = {page.name: page.read_text("utf-8") for page in PAGES}
INCLUDED = re.compile(r'^--8<-- "([^":]+)(?::\w+)?"$', re.MULTILINE)  # a file, or a section of it


def blocks(text: str) -> list[str]:
    """The blocks of plain Python, without those that show a file."""
    found = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [block for block in found if not INCLUDED.search(block)]


# The README's example is run as a program of its own, in test_package.py.
PYTHON = [
    pytest.param(block, id=f"{name}, block {i}")
    for name, text in TEXTS.items()
    for i, block in enumerate(blocks(text))
    if name != "README.md"
]


@pytest.fixture
def _logging_as_before():
    logger = logging.getLogger("pullback")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if ">>> " in text])
def test_the_sessions_on_a_page_are_true(name):
    page = next(page for page in PAGES if page.name == name)
    results = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert results.attempted > 0 and results.failed == 0


@pytest.mark.usefixtures("_logging_as_before")
@pytest.mark.parametrize("block", PYTHON)
def test_the_python_on_a_page_runs_as_it_stands(block):
    exec(compile(block, "a block of the docs", "exec"), {"__name__": "docs"})


def test_an_estimator_of_the_guide_trains():
    made = {}
    exec(next(block for block in blocks(TEXTS["extending.md"]) if "careful_spigot" in block), made)
    scores = torch.zeros(2, 3, requires_grad=True)
    made["careful_spigot"]().loss(pullback.Categorical(), scores, lambda z: z[..., 0]).sum().backward()
    assert (scores.grad[:, 0] > 0).all()


@pytest.mark.parametrize("program", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_program_runs(program, capsys, monkeypatch):
    short = {"--epochs": ["1"], "--images": ["397"], "--steps": ["3"]}  # those that take long have a short form
    words = [word for option, few in short.items() if option in program.read_text("utf-8") for word in (option, *few)]
    monkeypatch.setattr("sys.argv", [program.name, *words])
    for known in (tasks.TASKS, tasks.SETUPS):
        monkeypatch.setitem(known, "marked", None)  # what own_task.py adds is taken away again
    runpy.run_path(str(program), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", TEXTS)
def test_files_that_a_page_shows_or_links_to_exist(name):
    here = next(page for page in PAGES if page.name == name).parent
    links = re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", TEXTS[name])
    assert all((here / link).is_file() for link in links)
    assert all((ROOT / shown).is_file() for shown in INCLUDED.findall(TEXTS[name]))


def test_the_tables_of_structures_name_every_structure():
    interfaces = {"Structure", "LogLinear", "Enumerable", "KBest", "Lattice", "Simplex", "Transport", "Product"}
    structures = [
        name
        for name in pullback.__all__
        if isinstance(getattr(pullback, name), type) and issubclass(getattr(pullback, name), pullback.Structure)
    ]
    for name in {*structures, "product"} - interfaces:
        for page in ("README.md", "structures.md", "notation.md"):
            assert re.search(rf"^\|.*`{name}`", TEXTS[page], re.MULTILINE), f"{name} is in no table of {page}"
