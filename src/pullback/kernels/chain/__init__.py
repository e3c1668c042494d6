"""Linear chains: sequences of tags, scored by their pairs of neighbors."""

from pullback.kernels.chain.k_best import topk
from pullback.kernels.chain.samples import sample
from pullback.kernels.chain.sums import hessian_product, log_partition, partition

__all__ = ["hessian_product", "log_partition", "partition", "sample", "topk"]
