"""One runnable script per use, and the demo that shows them all."""
