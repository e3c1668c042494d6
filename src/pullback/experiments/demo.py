"""The demo: two small but real comparisons, in settings in which estimators differ."""

from dataclasses import replace
from typing import Any

from pullback.experiments.run import Run
from pullback.experiments.sweep import cells
from pullback.experiments.tasks import SETUPS

CLUSTERS = (
    "gold",
    "frozen",
    "ste",
    "spigot",
    "spigot_ce",
    "spigot_eg(step_size=0.1)",
    "structured_attention",
    "sparsemap",
    "ste_marginals",
    "minimum_risk",
)
# One seed: a tree model takes longer than all clusters.  A small step where labels start from marginals; noise for
# spigot_eg, none for relaxations.  The first compiles most of the kernels, while the second and third need none.
LISTOPS = ("sparsemap", "gold", "flat", "structured_attention", "spigot_eg(step_size=0.1, noise=1)", "spigot(noise=1)")


def runs(steps: int = 0) -> list[Run[Any]]:
    """Eight estimators × 3 seeds on clusters, and four on latent trees, beside yardsticks; `steps` of each if given."""
    clusters = SETUPS["clusters"].with_setting("batch_size", 1000)
    clusters = replace(clusters, steps=steps or 1000, evaluate_every=steps or 200)
    listops = SETUPS["listops"].with_setting("test", 500)
    listops = replace(listops, steps=steps or 500, evaluate_every=steps or 100)
    # The long ones first, so that all processors end at about the same time.
    return [*cells(listops, LISTOPS, 1, ()), *cells(clusters, CLUSTERS, 3, ())]
