"""Walks through TGen's Markov models with TGen's random choices (tgen-markovmodel.c)."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from .glib_random import GlibRandom
from .markov_model import Choice, Event, MarkovModel, Option


class Step(NamedTuple):
    """An event of a walk and the delay after it, in microseconds."""

    event: Event
    delay_us: int


class MarkovWalk:
    """A walk with the same steps as TGen's for the same model and seed.

    seed: 0 to 2**32 - 1. ended: whether END was observed, after which every step is END.
    """

    def __init__(self, model: MarkovModel, seed: int) -> None:
        self.model = model
        self.seed = seed
        self.ended = False
        self._random = GlibRandom(seed)
        self._state = model.start

    def step(self) -> Step:
        """Go to the next state and return its emission."""
        if self.ended:
            return Step(Event.END, 0)
        states = self.model.states
        self._state = self._choose(states[self._state].transitions)
        emission = self._choose(states[self._state].emissions)
        # TGen also draws the delay after the end, although nothing waits for it. A walk after a
        # reset continues with the following numbers.
        delay_us = emission.delay.draw_us(self._random)
        self.ended = emission.event is Event.END
        return Step(emission.event, delay_us)

    def reset(self) -> None:
        """Return to the start state. The random numbers continue."""
        self.ended = False
        self._state = self.model.start

    def _choose(self, choice: Choice[Option]) -> Option:
        cumulative = choice.cumulative
        return choice.options[bisect_left(cumulative, self._random.real() * cumulative[-1])]
