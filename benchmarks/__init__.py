"""Side-by-side measurements: dsh against bare loops that do the same wire work.

What comes in: sizes on the command line. What goes out: one table of ratios, medians of several
runs, CPU seconds of the measured process. Nothing here asserts a time.
"""
