"""A categorical draw in the forward pass, something smooth that depends on it in the backward pass."""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from pullback.estimators._estimator import Estimator, Loss, check_batch, cooled, follow
from pullback.regularizers._options import Number, check_count, check_number, now
from pullback.structures._capabilities import Simplex, require
from pullback.structures._structure import Structure


class StraightThrough(nn.Module, Estimator):
    """Decode from a draw, and differentiate something smooth in its place, given the draw.  Categorical choices only.

    z ~ softmax(s),  gradient = J ∇L(z), J the Jacobian of `smooth`.

    temperature: of what is differentiated; the draw has none.  A number, a tensor with one for each example, or a
    function of no arguments that returns either.  generator: where random numbers come from.
    """

    def __init__(self, temperature: Number = 1.0, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        check_number(f"{type(self).__name__}: temperature", temperature, above=True)
        self.temperature, self.generator = temperature, generator

    @abstractmethod
    def smooth(self, structure: Simplex, scores: Tensor, drawn: Tensor) -> Tensor:
        """What is differentiated in the scores, which are restricted; its value is not used."""

    @property
    def evaluations(self) -> int:
        return 1

    def loss(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        return follow(structure, downstream, self(structure, scores))

    def forward(self, structure: Structure, scores: Tensor) -> Tensor:
        """The draw; its gradient is linear in what arrives, so it means the same however losses are weighted."""
        simplex = require(structure, Simplex, type(self).__name__)
        scores = structure.restrict(scores)
        drawn = simplex.sample(scores.detach(), generator=self.generator)
        if not (torch.is_grad_enabled() and scores.requires_grad):
            return drawn
        smooth = self.smooth(simplex, scores, drawn)
        return drawn + (smooth - smooth.detach())

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"


class GumbelRao(StraightThrough):
    """The straight-through Gumbel-softmax, averaged over the noise that could have led to the draw.

    Differentiates the mean of softmax((s + ε) / T) over `samples` draws of Gumbel noise ε, given that
    argmax(s + ε) = z.  Reference: Paulus, Maddison and Krause (2021).
    """

    def __init__(
        self, temperature: Number = 1.0, samples: int = 16, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(temperature, generator=generator)
        check_count("GumbelRao: samples", samples)
        self.samples = int(samples)

    def smooth(self, structure: Simplex, scores: Tensor, drawn: Tensor) -> Tensor:
        noisy = scores + self._noise(scores.detach(), drawn)
        return structure.marginals(cooled(structure, noisy, self.temperature)).mean(0)

    def _noise(self, scores: Tensor, drawn: Tensor) -> Tensor:
        """Gumbel noise (samples, *scores.shape), given that the largest perturbed score is the one drawn.

        The largest of s + ε is Gumbel whichever it is, −log e₀ for scores with Σ exp(s) = 1; the others are those below
        it, −log(eⱼ / pⱼ + e₀), with eⱼ and e₀ exponential.
        """
        device = torch.device("cpu") if self.generator is None else self.generator.device
        shape = (self.samples, *scores.shape)
        uniform = torch.rand(shape, generator=self.generator, dtype=torch.float64, device=device).to(scores.device)
        log_e = (-uniform.clamp_min(torch.finfo(torch.float64).tiny).log()).log()
        log_p = scores.double().log_softmax(-1)
        forbidden = scores == -torch.inf
        first = log_e.masked_fill(drawn == 0, 0).sum(-1, keepdim=True)
        others = -torch.logaddexp(log_e - log_p.masked_fill(forbidden, 0), first)
        noise = torch.where(drawn == 1, -first, others) - log_p
        return noise.masked_fill(forbidden, 0).to(scores.dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, samples={self.samples}"


class ReinMax(StraightThrough):
    """Straight-through of second order: exact on average for losses that are quadratic in z.

    J = 2 J(m) − ½ J(p), with p = softmax(s), m the mean of softmax(s / T) and z, and J(q) = diag q − q qᵀ, the Jacobian
    of the softmax where it is q.  Reference: Liu et al. (2023).
    """

    def smooth(self, structure: Simplex, scores: Tensor, drawn: Tensor) -> Tensor:
        middle = (structure.marginals(cooled(structure, scores.detach(), self.temperature)).detach() + drawn) / 2
        free = scores.masked_fill(scores == -torch.inf, 0)
        at_middle = structure.marginals(middle.log() + (free - free.detach()))
        return 2 * at_middle - structure.marginals(scores) / 2


class Gapped(StraightThrough):
    """Straight-through at scores that are moved, by no more than needed, to have the draw as their argmax.

    Differentiates softmax(s′ / T): the drawn category is raised to the largest score, and the others are lowered to at
    least `gap` below it.  Reference: Fan et al. (2022).

    gap: a number, a tensor with one for each example, or a function of no arguments that returns either.
    """

    def __init__(
        self, temperature: Number = 1.0, gap: Number = 1.0, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(temperature, generator=generator)
        check_number("Gapped: gap", gap)
        self.gap = gap

    def smooth(self, structure: Simplex, scores: Tensor, drawn: Tensor) -> Tensor:
        given = scores.detach()
        gap = now("Gapped: gap", self.gap)
        if isinstance(gap, Tensor) and gap.dim() > 0:
            check_batch("Gapped: gap", gap, structure, given)
            gap = structure.widen(gap.to(given))
        highest = given.amax(-1, keepdim=True)
        shift = torch.where(drawn == 1, highest - given, (highest - gap - given).clamp_max(0))
        return structure.marginals(cooled(structure, scores + shift, self.temperature))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, gap={self.gap}"


def gumbel_rao(temperature: Number = 1.0, samples: int = 16, *, generator: torch.Generator | None = None) -> GumbelRao:
    """Gumbel-Rao: the straight-through Gumbel-softmax with less variance; categorical choices only.

    z ~ softmax(s),  gradient = mean of J ∇L(z) over `samples`, J that of softmax((s + ε) / T), ε Gumbel noise given
    that argmax(s + ε) = z.

    Costs one evaluation and `samples` softmaxes.  Needs unit vectors (`Categorical`, and `Independent` of it).  The
    same mean as `perturb_and_map`, and never a larger variance.  Reference: Paulus, Maddison and Krause (2021).
    """
    return GumbelRao(temperature, samples, generator=generator)


def reinmax(temperature: Number = 1.0, *, generator: torch.Generator | None = None) -> ReinMax:
    """ReinMax: straight-through of second order; categorical choices only.

    z ~ softmax(s),  gradient = (2 J(m) − ½ J(p)) ∇L(z), with m = (softmax(s / T) + z) / 2 and p = softmax(s).

    Costs one evaluation and two softmaxes.  Needs unit vectors (`Categorical`, and `Independent` of it).  At T = 1 its
    mean is the exact gradient for quadratic losses; a temperature above 1 lowers the variance.
    Reference: Liu et al. (2023).
    """
    return ReinMax(temperature, generator=generator)


def gapped_ste(temperature: Number = 1.0, gap: Number = 1.0, *, generator: torch.Generator | None = None) -> Gapped:
    """Gapped straight-through: the Jacobian of a softmax that agrees with the draw; categorical choices only.

    z ~ softmax(s),  gradient = J ∇L(z), J that of softmax(s′ / T);  s′ is s with the drawn category raised to the
    largest score, and the others at least `gap` below it.

    Costs one evaluation and one softmax.  Needs unit vectors (`Categorical`, and `Independent` of it).  Less variance
    than the straight-through Gumbel-softmax, as no noise is left in the Jacobian.  Reference: Fan et al. (2022).
    """
    return Gapped(temperature, gap, generator=generator)
