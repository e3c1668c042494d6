"""What a discrete structure is: its vertices, its best vertex, its marginals, its nearest point.

Each file holds one structure and leans on `kernels` for its algorithms, through the operators of `_bridge`.  Nothing
here knows a regularizer, a step size or an estimator.
"""
