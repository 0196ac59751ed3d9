"""Helpers of all engines: settings, files, threads, lazy imports and text."""
