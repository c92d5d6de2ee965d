"""The kinds of claims: a module for each kind of statement, with its directions."""
