"""Strict YAML files: read with their lines, checked by models, wrong ones named key by key."""
