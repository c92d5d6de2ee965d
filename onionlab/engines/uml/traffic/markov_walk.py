"""Walks through TGen's Markov models, with TGen's own random choices (tgen-markovmodel.c)."""

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
    """A walk: the same steps for the same model and seed as TGen's.

    seed: 0 to 2**32 - 1. ended: whether END was observed, after which every step is END.
    """

    def __init__(self, model: MarkovModel, seed: int) -> None:
        self.model = model
        self.seed = seed
        self.ended = False
        self._random = GlibRandom(seed)
        self._state = model.start

    def step(self) -> Step:
        """Go to the next state and take what it emits."""
        if self.ended:
            return Step(Event.END, 0)
        states = self.model.states
        self._state = self._choose(states[self._state].transitions)
        emission = self._choose(states[self._state].emissions)
        # TGen draws the delay after the end too, though nothing waits for it: a reset walk goes on
        # with the numbers that follow.
        delay_us = emission.delay.draw_us(self._random)
        self.ended = emission.event is Event.END
        return Step(emission.event, delay_us)

    def reset(self) -> None:
        """Go back to the start; the random numbers go on."""
        self.ended = False
        self._state = self.model.start

    def _choose(self, choice: Choice[Option]) -> Option:
        cumulative = choice.cumulative
        return choice.options[bisect_left(cumulative, self._random.real() * cumulative[-1])]
