"""What smooths the argmax: zero, entropy, the squared norm, and the losses they define.

A regularizer knows its own formula and asks a structure for the rest.  It never needs to know which structure it is,
nor what a step or an estimator does with its prediction.
"""
