"""Training runs: tasks, runs, records, sweeps and reports.

The one room that knows a file name, a data set or a seed.  It uses the library by its front door, as a reader would, so
that a task is an example too.  `tasks/` has one file for each task; nothing else here knows what a task is about.
"""
