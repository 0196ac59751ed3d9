"""Growth of a memory, and costs of adding and of sleep phases."""
