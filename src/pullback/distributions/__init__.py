"""Random structures with the interface of `torch.distributions`.

A distribution holds a structure and its scores, and asks the structure for the rest: sums, samples, the mixture that
SparseMAP finds.  It never needs to know which structure it is, nor what a loss or an estimator does with it.
"""
