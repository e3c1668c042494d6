"""How structures are made: what they cannot do without, then lengths, then mask, and all else by keyword."""

import inspect
import re
from pathlib import Path

import pytest

import pullback as pb

MADE = {
    name: made
    for name in dir(pb)
    if inspect.isclass(made := getattr(pb, name)) and issubclass(made, pb.Structure) and not inspect.isabstract(made)
}
MADE |= {"Subset.at_most": pb.Subset.at_most, "Subset.between": pb.Subset.between}
MADE["SpanningTree.forest"] = pb.SpanningTree.forest


def arguments(made):
    """The names of those that are needed, of others by position, and of those by keyword."""
    every = inspect.signature(made).parameters.values()
    needed = [each.name for each in every if each.default is each.empty and each.kind == each.POSITIONAL_OR_KEYWORD]
    others = [each.name for each in every if each.default is not each.empty and each.kind == each.POSITIONAL_OR_KEYWORD]
    return needed, others, [each.name for each in every if each.kind == each.KEYWORD_ONLY]


@pytest.mark.parametrize("name", MADE)
def test_what_is_needed_comes_first_and_then_lengths_and_mask(name):
    needed, others, _ = arguments(MADE[name])
    assert others in ([], ["lengths"], ["mask"], ["lengths", "mask"])
    assert not {"lengths", "mask"} & set(needed)


def test_the_table_of_the_docs_says_so():
    page = (Path(__file__).parents[2] / "docs" / "structures.md").read_text("utf-8")
    table = page.split("| structure | in this order | by keyword |")[1].split("\n\n")[0]
    told = {}
    for row in table.strip().splitlines()[1:]:
        names, in_order, by_keyword = (re.findall(r"`([\w.]+)`", cell) for cell in row.split("|")[1:4])
        told |= dict.fromkeys(names, (in_order, by_keyword))
    assert told.pop("product") == ([], ["shapes"])
    assert set(told) == set(MADE) - {"Product"}
    for name, said in told.items():
        needed, others, by_keyword = arguments(MADE[name])
        assert said == (needed + others, by_keyword), name
