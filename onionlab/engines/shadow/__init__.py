"""The engine `shadow`, which uses the Shadow and the TGen that the user has installed."""
