"""The tasks, and set-ups in which they are run: a name, and a run that others differ from in a few settings."""

from typing import Any

from pullback.experiments.run import Optimizer, Run
from pullback.experiments.task import Task
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

_TASKS = (
    Clusters,
    SubsetToy,
    ListOps,
    Polarity,
    Rationales,
    MorphSegmentation,
    Digits,
    Pronunciation,
    DigitsVAE,
    Parsing,
    NameTagging,
)
TASKS: dict[str, type[Task]] = {task.name: task for task in _TASKS}
"""Every task by its name."""

_LISTOPS = Optimizer("adamw", learning_rate=5e-3, encoder_learning_rate=1e-3, batch_size=64, decay="cosine", clip=1.0)
_POLARITY = Optimizer("adamw", learning_rate=1e-3, batch_size=64, decay="cosine", clip=1.0)
_MORPHSEG = Optimizer("adam", learning_rate=5e-3, encoder_learning_rate=1e-3, batch_size=64, decay="cosine", clip=1.0)
_DIGITS = Optimizer("adam", learning_rate=1e-3, batch_size=64, decay="cosine")
_VAE = Optimizer("adam", learning_rate=5e-3, batch_size=100, decay="cosine")

SETUPS: dict[str, Run[Any]] = {
    # A fast decoder and a slow encoder on half batches, so that latents do not die before the decoder knows them.
    "clusters": Run(
        Clusters(),
        optimizer=Optimizer("adam", learning_rate=0.1, encoder_learning_rate=1e-3, batch_size=2500),
        noise=1.0,
        steps=1000,
        evaluate_every=100,
    ),
    # More clusters take a slower encoder and more noise, which falls: else two of them share a rule before each has
    # found its own, or the decoder never sees them without noise.  The last steps are without any.
    "clusters-10": Run(
        Clusters(clusters=10),
        optimizer=Optimizer("adam", learning_rate=0.1, encoder_learning_rate=3e-4, batch_size=1000),
        noise=3.0,
        noise_until=0.7,
        steps=9000,
        evaluate_every=500,
    ),
    # As published: full batches, one learning rate, no noise.  Its grid: learning_rate=1e-4,1e-3,2e-3 and
    # step_size=0.1,1,2.
    "clusters-published": Run(
        Clusters(),
        optimizer=Optimizer("adam", learning_rate=1e-3),
        steps=10_000,
        evaluate_every=500,
        seed=301,
    ),
    "subset": Run(
        SubsetToy(),
        optimizer=Optimizer("adam", learning_rate=0.1),
        steps=100,
        evaluate_every=10,
    ),
    # Short expressions.
    "listops": Run(
        ListOps(),
        optimizer=_LISTOPS,
        steps=3000,
        evaluate_every=250,
    ),
    # The lengths and depths that were published; an operator has up to ten arguments, or depth 1 would be too short.
    "listops-published": Run(
        ListOps(depth=5, shortest=10, longest=50, arguments=10),
        optimizer=_LISTOPS,
        steps=6000,
        evaluate_every=500,
    ),
    "polarity": Run(
        Polarity(),
        optimizer=_POLARITY,
        steps=500,
        evaluate_every=100,
    ),
    # What the same words say without a tree; the estimator has nothing to do.
    "polarity-bilstm": Run(
        Polarity(decoder="bilstm"),
        estimator="frozen",
        optimizer=_POLARITY,
        steps=500,
        evaluate_every=100,
    ),
    "rationales": Run(
        Rationales(),
        optimizer=_POLARITY,
        steps=800,
        evaluate_every=100,
    ),
    "rationales-spans": Run(
        Rationales(choice="spans"),
        optimizer=_POLARITY,
        steps=800,
        evaluate_every=100,
    ),
    # Images of digits in order, as a matching of images and places, and as the ranks of the images.  Noise helps spigot
    # and hurts relaxations: give it to a row, as in "spigot(noise=1)".
    "digits": Run(
        Digits(),
        optimizer=_DIGITS,
        steps=2000,
        evaluate_every=250,
    ),
    "digits-ranking": Run(
        Digits(latent="ranking"),
        optimizer=_DIGITS,
        steps=2000,
        evaluate_every=250,
    ),
    "alignment": Run(
        Pronunciation(),
        optimizer=Optimizer("adam", learning_rate=3e-3, encoder_learning_rate=1e-3, batch_size=64, decay="cosine"),
        steps=1000,
        evaluate_every=125,
    ),
    # Images described by three choices out of six, and by eight bits.
    "vae": Run(
        DigitsVAE(),
        optimizer=_VAE,
        steps=600,
        evaluate_every=100,
    ),
    "vae-bits": Run(
        DigitsVAE(latent="bits", size=8),
        optimizer=_VAE,
        steps=600,
        evaluate_every=100,
    ),
    "parsing": Run(
        Parsing(),
        "crf",
        optimizer=Optimizer("adam", learning_rate=2e-3, batch_size=32, decay="cosine", clip=5.0),
        steps=1500,
        evaluate_every=250,
    ),
    "tagging": Run(
        NameTagging(),
        "crf",
        optimizer=Optimizer("adam", learning_rate=3e-3, batch_size=32, decay="cosine", clip=5.0),
        steps=1000,
        evaluate_every=200,
    ),
    "morphseg": Run(
        MorphSegmentation(),
        optimizer=_MORPHSEG,
        steps=1500,
        evaluate_every=250,
    ),
}
"""Every set-up by its name: what `pullback run NAME` trains if no setting is changed."""


_OF_ROWS = ("estimator", "noise", "noise_until", "seed")


def setup_of(run: Run[Any]) -> str:
    """The set-up of the same task that differs from a run in the fewest settings.

    Estimator, noise and seed do not count: they may differ between the rows of one table.
    """
    given = {name: value for name, value in run.settings().items() if name not in _OF_ROWS}

    def differences(name: str) -> int:
        standard = SETUPS[name].settings()
        return sum(value != standard[setting] for setting, value in given.items())

    return min((name for name in SETUPS if SETUPS[name].task.name == run.task.name), key=differences)
