"""Small runs for the tests of the experiments."""

import dataclasses

import torch

from pullback.experiments.records import read_records
from pullback.experiments.run import Optimizer, Run
from pullback.experiments.tasks import SETUPS, TASKS
from pullback.experiments.tasks.alignment import Pronunciation
from pullback.experiments.tasks.clusters import Clusters
from pullback.experiments.tasks.digits import Digits
from pullback.experiments.tasks.listops import ListOps
from pullback.experiments.tasks.morphseg import MorphSegmentation
from pullback.experiments.tasks.parsing import Parsing
from pullback.experiments.tasks.polarity import Polarity
from pullback.experiments.tasks.rationales import Rationales
from pullback.experiments.tasks.subset import SubsetToy
from pullback.experiments.tasks.tagging import NameTagging
from pullback.experiments.tasks.vae import DigitsVAE
from pullback.experiments.watcher import Watcher

__all__ = ["SETUPS", "SMALL", "TASKS", "Interrupting", "clusters", "history"]

QUICK = {"steps": 4, "evaluate_every": 2}
SMALL = {
    "clusters": Run(Clusters(features=8), optimizer=Optimizer(batch_size=50), **QUICK),
    "subset": Run(SubsetToy(n=5, k=2, instances=4), optimizer=Optimizer(learning_rate=0.1), **QUICK),
    "listops": Run(
        ListOps(depth=2, longest=12, train=40, test=12),
        optimizer=Optimizer("adamw", encoder_learning_rate=1e-3, batch_size=8, decay="cosine", clip=1.0),
        **QUICK,
    ),
    "polarity": Run(Polarity(), optimizer=Optimizer("adamw", batch_size=8), **QUICK),
    "polarity-bilstm": Run(Polarity(decoder="bilstm"), "frozen", optimizer=Optimizer("adamw", batch_size=8), **QUICK),
    "rationales": Run(Rationales(), optimizer=Optimizer("adamw", batch_size=8), **QUICK),
    "rationales-spans": Run(Rationales(choice="spans"), optimizer=Optimizer("adamw", batch_size=8), **QUICK),
    "digits": Run(Digits(n=3, train=40, test=20), optimizer=Optimizer(batch_size=8), **QUICK),
    "digits-ranking": Run(Digits(latent="ranking", n=3, train=40, test=20), optimizer=Optimizer(batch_size=8), **QUICK),
    "vae": Run(DigitsVAE(size=2, out_of=3), optimizer=Optimizer(batch_size=20), **QUICK),
    "vae-bits": Run(DigitsVAE(latent="bits", size=3), optimizer=Optimizer(batch_size=20), **QUICK),
    "alignment": Run(Pronunciation(), optimizer=Optimizer(batch_size=8), **QUICK),
    "parsing": Run(Parsing(hidden=8), "crf", optimizer=Optimizer(batch_size=8), **QUICK),
    "morphseg": Run(MorphSegmentation(fewest=3, hidden=8), optimizer=Optimizer(batch_size=8), **QUICK),
    "tagging": Run(NameTagging(hidden=8), "crf", optimizer=Optimizer(batch_size=8), **QUICK),
}


def clusters(estimator="spigot", **settings):
    """A small run on clusters."""
    return dataclasses.replace(SMALL["clusters"], estimator=estimator, **settings)


def history(folder):
    """The records of a run without what a clock says."""
    records, complaint = read_records(folder / "records.jsonl")
    assert complaint is None
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


class Interrupting(Watcher):
    """Presses Ctrl-C after a step."""

    def __init__(self, step):
        self.step = step

    def on_step(self, step: int, loss: torch.Tensor):
        if step == self.step:
            raise KeyboardInterrupt
