"""Simulated deployments: cost of routing and of a fixed strategy."""
