"""The seams: one module per replaceable capability, its abstract class and its service key.

What comes in: nothing. What goes out: interfaces that plugins implement and rooms require, each
entered by its own module (`from dsh.seams.persistence import PERSISTENCE`). No seam has behaviour.
Beside them stands what all providers of one seam must do alike: the lock file by which stores own a
session (`ownership`), processes that end with us (`processes`), what is kept of an endless output
(`output`), and how foreign bytes and names are shown (`display`).
"""
