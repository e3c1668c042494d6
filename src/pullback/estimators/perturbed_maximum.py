"""The argmax smoothed by noise: a regularizer that is known through its draws."""

from typing import Any

import torch
from torch import Tensor, nn

from pullback.estimators.noise import Noise, SmoothNoise, noise_of
from pullback.estimators.relaxation import Relaxation
from pullback.regularizers._options import Number, check_count
from pullback.regularizers._regularizer import Regularizer
from pullback.structures._structure import Structure


class PerturbedMaximum(Regularizer, nn.Module):
    """The regularizer whose conjugate is the expected maximum of perturbed scores, Ω*(s) = E max ⟨s + σε, z⟩.

    Both are means over `samples` draws: `conjugate` of the maximum, `predict` of the argmax.  `predict` is
    differentiable: for noise of density exp(−ν(ε)) its Jacobian is E[(argmax(s + σε) − argmax(s)) ∇ν(ε)ᵀ] / σ, where
    argmax(s) changes no mean and lowers the variance.  In `FenchelYoungLoss` it learns a label that is a vertex; there
    Ω(z) = −σ E⟨ε, z⟩, which makes the loss 0 in the limit of scores that are sure of z.

    noise: a `SmoothNoise`, `Gumbel()` or `Normal()`, or its name; its scale is σ.
    generator: where random numbers come from.  Reference: Berthet et al. (2020).
    """

    noise: SmoothNoise

    def __init__(
        self, noise: Noise | str = "normal", samples: int = 16, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        check_count("PerturbedMaximum: samples", samples)
        given = noise_of("PerturbedMaximum", noise)
        if not isinstance(given, SmoothNoise):
            raise TypeError(
                f"PerturbedMaximum: noise is {given}; expected one whose density is known, Gumbel() or Normal()."
            )
        self.noise, self.samples, self.generator = given, int(samples), generator

    def predict(self, structure: Structure, scores: Tensor) -> Tensor:
        scores = structure.restrict(scores)
        epsilon, scale = self._drawn(structure, scores)
        noisy = scores.detach() + scale * epsilon
        if not (torch.is_grad_enabled() and scores.requires_grad):
            return structure.argmax(noisy).mean(0)
        every = structure.argmax(torch.cat([noisy, scores.detach().unsqueeze(0)]))
        size = torch.as_tensor(scale, dtype=scores.dtype, device=scores.device)
        size = torch.where(size == 0, 1, size)  # without noise every vertex is the last, and the gradient 0
        slope = structure.count_once(self.noise.slope(epsilon)) / size
        mean: Tensor = _MonteCarlo.apply(scores, every, slope, structure.event_dims)  # type: ignore[no-untyped-call]
        return mean

    def conjugate(self, structure: Structure, scores: Tensor) -> Tensor:
        scores = structure.restrict(scores)
        epsilon, scale = self._drawn(structure, scores, detached=False)
        noisy = scores + scale * epsilon
        best = structure.argmax(noisy)
        return (structure.inner(noisy, best) + structure.own_score(best)).mean(0)

    def value(self, structure: Structure, point: Tensor) -> Tensor:
        if not bool(structure.contains(point.detach()).all()):
            raise ValueError(
                "PerturbedMaximum: Ω is known at vertices alone, and a point between them was given; expected zeros "
                "and ones, such as an argmax."
            )
        uses = self.noise.mean * self.noise.scale_of(structure, point) * structure.count_once(point)
        return -structure.own_score(point) - uses.flatten(-structure.event_dims).sum(-1)

    def _drawn(self, structure: Structure, scores: Tensor, detached: bool = True) -> tuple[Tensor, float | Tensor]:
        """ε (samples, *batch, *event) and σ."""
        scale = self.noise.scale_of(structure, scores)
        if isinstance(scale, Tensor) and detached:
            scale = scale.detach()
        return self.noise.standard(structure, scores.detach(), (self.samples,), generator=self.generator), scale

    def extra_repr(self) -> str:
        return f"samples={self.samples}"


class _MonteCarlo(torch.autograd.Function):
    """The mean of all vertices but the last, the argmax without noise; its Jacobian is estimated from the same draws.

    Row m of `slope` is ∇ν(ε) / σ of draw m, and the gradient the mean over m of ⟨vertex m − the last, gradient⟩ slope.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, vertices: Tensor, slope: Tensor, event_dims: int) -> Tensor:
        ctx.save_for_backward(vertices, slope)
        ctx.event_dims = event_dims
        return vertices[:-1].mean(0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        vertices, slope = ctx.saved_tensors
        last = tuple(range(-ctx.event_dims, 0))
        along = ((vertices[:-1] - vertices[-1]) * gradient).sum(last, keepdim=True)  # (samples, *batch, 1, …)
        return (along * slope).mean(0), None, None, None


def perturbed(
    temperature: Number = 1.0,
    noise: Noise | str = "normal",
    samples: int = 16,
    *,
    generator: torch.Generator | None = None,
) -> Relaxation:
    """The perturbed optimizer: decode from the mean of argmaxes of perturbed scores.

    μ = mean of argmax(s / T + ε) over `samples`,  gradient = mean of (⟨z, ∇L(μ)⟩ − ⟨argmax(s), ∇L(μ)⟩) ∇ν(ε) / T, for
    noise of density exp(−ν): ∇ν(ε) is ε for "normal" and 1 − exp(−ε) for "gumbel".

    Costs one evaluation and samples + 1 argmaxes, as one batch.  Needs an argmax alone, and a decoder that accepts
    mixtures; the gradient is unbiased for that of the smoothed argmax, and its variance falls as 1 / samples.  The
    Fenchel–Young loss beside it is that of `PerturbedMaximum`.  Reference: Berthet et al. (2020).
    """
    return Relaxation(PerturbedMaximum(noise, samples, generator=generator), temperature)
