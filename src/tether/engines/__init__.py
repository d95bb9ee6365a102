"""Where the pieces of a run are computed, in this process or on a cluster, and where they are kept."""
