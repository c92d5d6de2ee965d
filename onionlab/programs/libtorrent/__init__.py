"""libtorrent as the experiments with peers use it: source, variants, build."""
