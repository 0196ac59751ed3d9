"""Infinite Room: a long stream, a small memory and noise (paper, sections 3 and A.4)."""
