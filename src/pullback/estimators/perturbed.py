"""Estimators under noise: perturb the scores, and average over draws."""

import torch
from torch import Tensor, nn

from pullback.estimators._estimator import Estimator, Loss, Replay, evaluate
from pullback.estimators._inspection import Label
from pullback.estimators.noise import Noise, noise_of
from pullback.estimators.relaxation import sparsemap, ste_marginals, structured_attention
from pullback.regularizers._options import Number, check_count
from pullback.structures._structure import Structure


class Perturbed(nn.Module, Estimator):
    """An estimator on perturbed scores s + ε, averaged over independent draws of ε.

    inner: the estimator; with several draws it works on one batch (samples, *batch), in which every draw is an example.
    noise: a `Noise`, or its name.  With `NoNoise()` it repeats an estimator that is random by itself.
    samples: how many draws; each costs what `inner` costs, and the decoder sees them one by one.
    generator: where random numbers come from.

    Callable if `inner` is and `samples` is 1.
    """

    def __init__(
        self,
        inner: Estimator,
        noise: Noise | str = "gumbel",
        samples: int = 1,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_count("Perturbed: samples", samples)
        if not isinstance(inner, Estimator):
            raise TypeError(f"Perturbed: inner is {inner!r}; expected an Estimator such as ste_marginals().")
        self.inner, self.noise, self.samples = inner, noise_of("Perturbed", noise), int(samples)
        self.generator = generator

    @property
    def evaluations(self) -> int | None:
        once = self.inner.evaluations
        return None if once is None else self.samples * once

    def loss(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        noisy = self._noisy(structure, scores)
        if self.samples == 1:
            return self.inner.loss(structure, noisy, downstream)
        return self.inner.loss(structure, noisy, _one_by_one(structure, downstream)).mean(0)

    def forward(self, structure: Structure, scores: Tensor) -> Tensor:
        """The point of `inner` at perturbed scores."""
        if self.samples > 1:
            raise TypeError(
                f"Perturbed averages the losses of {self.samples} samples: call `estimator.loss(structure, scores, "
                "downstream)` instead of `estimator(structure, scores)`, or take one sample."
            )
        return self.inner(structure, self._noisy(structure, scores))

    def _inspect_label(self, structure: Structure, scores: Tensor, downstream: Loss, replay: Replay) -> Label | None:
        """The labels of one draw; those of several are not told apart."""
        if self.samples > 1:
            return None
        return self.inner._inspect_label(structure, self._noisy(structure, scores), downstream, replay)

    def _noisy(self, structure: Structure, scores: Tensor) -> Tensor:
        """s + ε, for several samples (samples, *batch, *event)."""
        scores = structure.restrict(scores)
        several = () if self.samples == 1 else (self.samples,)
        return scores + self.noise.draw(structure, scores, several, generator=self.generator)

    def extra_repr(self) -> str:
        inner = "" if isinstance(self.inner, nn.Module) else f"{self.inner}, "
        return f"{inner}samples={self.samples}"


def _one_by_one(structure: Structure, downstream: Loss) -> Loss:
    """The downstream loss of stacked points, for a decoder that knows the user's batch alone."""
    return lambda points: torch.stack([evaluate(structure, downstream, point.clone()) for point in points])


def perturb_and_map(
    temperature: Number = 1.0,
    noise: Noise | str = "gumbel",
    samples: int = 1,
    *,
    generator: torch.Generator | None = None,
) -> Perturbed:
    """Perturb-and-MAP: the argmax of perturbed scores, with the Jacobian of the marginals there.

    z = argmax(s + ε),  gradient = mean of J ∇L(z) over `samples`, J that of marginals((s + ε) / T).  On a
    `Categorical` it is the straight-through Gumbel-softmax.

    Costs one evaluation, one argmax and one call of marginals per sample.  Needs a partition function.  For decoders
    that must see one structure, where the argmax alone explores too little.  Reference: Papandreou and Yuille (2011);
    Corro and Titov (2019); Jang, Gu and Poole (2017).
    """
    return Perturbed(ste_marginals(temperature), noise, samples, generator=generator)


def stochastic_softmax(
    temperature: Number = 1.0,
    noise: Noise | str = "gumbel",
    samples: int = 1,
    *,
    generator: torch.Generator | None = None,
) -> Perturbed:
    """The stochastic softmax trick: the marginals of perturbed scores; the Gumbel-softmax on a `Categorical`.

    μ = marginals((s + ε) / T),  gradient = mean of J ∇L(μ) over `samples`.

    Costs one evaluation and one call of marginals per sample.  Needs a partition function, and a decoder that accepts
    mixtures; a low temperature brings them near structures.  Reference: Paulus et al. (2020).
    """
    return Perturbed(structured_attention(temperature), noise, samples, generator=generator)


def stochastic_sparsemap(
    temperature: Number = 1.0,
    noise: Noise | str = "gumbel",
    samples: int = 1,
    *,
    generator: torch.Generator | None = None,
) -> Perturbed:
    """The stochastic softmax trick with the squared norm in place of entropy: SparseMAP of perturbed scores.

    μ = sparsemap((s + ε) / T),  gradient = mean of J ∇L(μ) over `samples`.

    Costs one evaluation and one projection per sample.  Needs an argmax alone; mixes few structures, and often one,
    where the gradient is zero.  Reference: Paulus et al. (2020).
    """
    return Perturbed(sparsemap(temperature), noise, samples, generator=generator)
