"""A paper's claims, each answered from the runs with one of the values of ``claim.Answer``.

A claim states formally what a paper states in words: a metric, levels, variants, and a direction.
A claim is divided into statements. Each statement is a comparison for which every network provides
a pair of values. ``verdicts`` judges the statements of a claim together, with Holm's correction,
and ``testable`` checks whether the runs could show them at all. A claim is supported if all of its
statements are supported. docs/reference/claims.md describes the rules.

To add a kind of claim, add it to ``directions``, and its comparison to ``statement``.
"""
