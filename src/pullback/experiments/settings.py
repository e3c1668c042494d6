"""Everything that decides a run.  The command line is this class's fields."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """One training run of the latent-cluster model.

    estimator: a name in `pullback.CATALOG`.
    step_size: the pull-back step η of methods that have one, per example.
    pull_steps: how many steps the label is pulled back.
    clusters, features: the size of the data.
    steps, learning_rate: Adam on the full training set.
    evaluate_every: steps between two records.
    """

    estimator: str = "spigot"
    step_size: float = 1.0
    pull_steps: int = 1
    clusters: int = 3
    features: int = 100
    steps: int = 2000
    learning_rate: float = 1e-3
    evaluate_every: int = 250
    data_seed: int = 42
    seed: int = 301

    def __post_init__(self) -> None:
        for name in ("pull_steps", "clusters", "features", "steps", "evaluate_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"Settings: {name} is {getattr(self, name)}; expected an integer ≥ 1.")
