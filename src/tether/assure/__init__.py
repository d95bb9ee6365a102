"""Try to refute what is claimed, and find how far the best could be."""
