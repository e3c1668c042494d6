"""What lets a person look at a model: drawings of structures, and comparisons of gradients.

An instrument reads points, structures and estimators, and leaves them as they were.  It leans on the rooms to its
right, and never needs to know a file name or a data set.
"""
