"""Read strict YAML files, and check them with models. Each error names its line and its key."""
