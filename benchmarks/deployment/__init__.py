"""Simulated deployments: what routing would have cost, beside always the same strategy."""
