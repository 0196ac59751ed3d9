"""The Efficiency Frontier: retrieve, compress or send everything, given how often it is reused."""
