"""From a plan to finished runs in the store: planning, running, packing."""
