"""Experiments of kind `peers`: one seed and one downloader of libtorrent, without Tor."""
