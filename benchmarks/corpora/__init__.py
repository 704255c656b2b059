"""Corpora: tasks made on the fly from the modules and operators of installed packages (docs/corpora.md).

Nothing of a package is copied: a task file imports it and names what it takes from it.
"""
