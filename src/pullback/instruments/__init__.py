"""What lets a person look at a model: drawings of structures, and comparisons of gradients.

An instrument reads points and structures and changes nothing.  It leans on the rooms to its right, and never needs to
know a file name, a data set or how a point was found.
"""
