"""What a person feels of a memory: facts found in other words, and what has changed.

The pairs of facts and questions, and what people say before and after a change, were written for
this benchmark. ``python -m benchmarks memory-words`` asks them with the settings that ship.
"""
