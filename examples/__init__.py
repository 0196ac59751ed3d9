"""Runnable scripts, one per use, and the demo."""
