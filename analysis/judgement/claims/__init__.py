"""A paper's claims, each answered on the runs, with one of the five answers of ``claim.Answer``.

A claim says in data what a paper says in words: which metric, at which levels, of which variants,
in which direction. It is taken apart into statements, each a comparison that every seed gives a
pair of values for; ``verdicts`` judges those together, with Holm's correction over one claim, and
``testable`` asks whether the runs could show it at all. A claim is supported if every part is.
docs/reference/claims.md has the rules in words.

A new kind of claim is a statement and its directions in a module of ``kinds``, and an entry in
``directions``.
"""
