"""The demo: the engines at work on the example data, with a real local model."""
