"""Read strict YAML files, and check them by models. Each error has its line and its key."""
