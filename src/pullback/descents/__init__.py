"""How a label is pulled back: steps on the downstream loss from a start point to a better one.

A descent knows a step size and a rule for one step.  It asks a regularizer or a structure for projections, and the
caller for losses and gradients; it touches neither autograd nor random numbers.
"""
