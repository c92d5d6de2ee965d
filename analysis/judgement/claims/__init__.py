"""A paper's claims, each answered on the runs: supported, contradicted, or not settled.

A claim says in data what a paper says in words: which metric, at which levels, of which variants,
in which direction. It is taken apart into statements, each a comparison that every seed gives a
pair of values for; ``verdicts`` judges those together, with Holm's correction over one claim. A
claim is supported if every part of it is, contradicted if any part is, and otherwise not settled.
docs/reference/claims.md has the rules in words.

A new kind of claim is a statement and its directions in a module of ``kinds``, and an entry in
``directions``.
"""
