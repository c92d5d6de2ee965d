"""Strict YAML files: read with their lines, checked by models, each error with its key."""
