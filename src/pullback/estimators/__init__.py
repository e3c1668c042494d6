"""How a loss reaches the scores through a discrete choice.

An estimator combines a structure, regularizers and a descent into one loss per example whose gradient trains the
encoder.  Here autograd, random numbers and baselines are handled, and nowhere else.
"""
