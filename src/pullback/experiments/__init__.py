"""Training runs: data, models, records and tables.

The one room that knows a file name, a data set or a seed.  It uses the library by its front door, as a reader would.
"""
