"""A small private network of native Tor processes, with one relay traced by LTTng."""
