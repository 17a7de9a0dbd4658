"""Renders a resolved catalog: Python modules, codec, documentation, typing matrix, build blocks.

What comes in: model objects. What goes out: texts by path. Nothing here reads or writes a file
other than its own templates, and no formatter runs afterwards.
"""
