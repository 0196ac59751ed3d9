"""The room in which a memory is kept: one SQLite file, the indexes over it, and what changes them.

Every module here knows the file: its tables and rows, its transactions, the operations on an open
memory (`core.Core`). What a memory is worth and what follows from it is decided next door, by
pure functions on values. The arrows point one way: ``store`` -> the algorithm and its values,
never back; `ecs_plugins.memory.entropic` and its `facade` -> both.
"""
