"""Discrete structures: polytopes, their best vertices, their marginals and their projections.

A structure knows what a tree or a subset is, and carries what is particular to a batch: lengths, masks, budgets.  It
leans on the operators, and never needs to know what a regularizer or a loss is.
"""
