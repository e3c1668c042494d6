"""What a kernel is to PyTorch: schema, shapes, dtype, device, threads, derivative.

An operator is written from one signature line, which its kernel repeats.  For kernels, tensors become
arrays here and nowhere else.  This room knows nothing of masks or of what is done with an answer, and of a structure
only its name, for the errors that a kernel reports.
"""
