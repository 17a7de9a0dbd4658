"""The compiler of the catalog: from `schema/` to Python, documentation and tests.

What comes in: YAML files and plugin.toml files. What goes out: generated files that are committed,
and faults with file, line and column. It never imports dsh, runs no formatter, and writes nothing
outside the generated places.
"""
