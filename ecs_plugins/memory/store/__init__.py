"""A memory on disk: one SQLite file, the indexes over it, and what changes them.

`sqlite_store.SqliteStore` is an open file with the operations on it, a dozen verbs of one
transaction each: add, recall, observe, view and apply (a sleep phase), update, delete, forget,
purge, reembed, compact, close. A store on another database offers the same verbs; what lies
below them is rows, SQL and FAISS.

What a memory is worth, what is recalled and what follows from it is decided next door, by pure
functions on values. The arrows point one way: ``store`` -> the algorithm and its values, never
back; `ecs_plugins.memory.entropic`, its ``admin`` and ``sleep`` -> both.
"""
