"""Demo of the engines on the example data, with a real local model."""
