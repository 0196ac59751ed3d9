"""How a memory behaves as it grows, and what an add and a sleep phase cost."""
