"""Memory on disk: one SQLite file, its indexes, and all changes of both.

`memory_store.MemoryStore` is an open file: its transactions, its indexes, what is pending. What is
done in a transaction stands in a module each: `intake` (add), `search` (recall), `queries` (what
was asked), `sleeps`, `changes`, `erasing`, `items`, `transfer`, `inspection`.

What a memory is worth and what is merged is decided next door, by pure functions on values. The
arrows point one way: ``store`` -> the algorithm and its values, never back;
`ecs_plugins.memory.entropic`, its ``admin`` and ``sleep`` -> both.
"""
