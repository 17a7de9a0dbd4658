"""The seams: one module per replaceable capability, its abstract class and its service key.

What comes in: nothing. What goes out: interfaces that plugins implement and rooms require, each
entered by its own module (`from dsh.seams.persistence import PERSISTENCE`). No seam has behaviour,
but for the lock file by which stores on a disk own a session (`dsh.seams.ownership`).
"""
