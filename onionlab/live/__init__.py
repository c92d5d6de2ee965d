"""A small private network of native Tors on this machine, one relay of it traced with LTTng."""
