"""libtorrent for the experiments with peers: source, variants, build."""
