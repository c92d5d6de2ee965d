"""The walk of a TGen client through its action graph (tgen-driver.c, tgen-generator.c)."""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from .action_graph import ActionGraph, Pause, StreamOptions
from .markov_model import Event
from .markov_walk import MarkovWalk
from .options import Peer
from .stream_state import StreamHost, StreamState, WhenOver
from .transport import Address

INSTANT_US = 1000
HOLD_US = 1_000_000
ENDS_IN_AN_INSTANT = 1000

# TGen chooses seven of these randomly and uses them as user name and password (tgen-generator.c).
_LOGIN_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@#&?!"
_LOGIN_LENGTH = 7

_COMPLETE = "[tgen-generator.c:287] [_tgengenerator_onCompleteHelper]"


@dataclass(eq=False)
class FlowGenerator:
    """One visit of a flow or traffic vertex. It starts children until its Markov model ends.

    vertex: the vertex's id. kind: "flow", whose children are streams, or "traffic", whose children
    are flows. begin_child: a function that starts a child, and returns False if this is impossible.
    A child calls `child_over` when it ends. when_over: a function to call once when the model and
    all children have ended. begun, completed: the numbers of children that have started and ended.
    """

    host: StreamHost
    walk: MarkovWalk
    vertex: str
    kind: Literal["flow", "traffic"]
    begin_child: Callable[[FlowGenerator], bool]
    when_over: Callable[[], None]
    begun: int = 0
    completed: int = 0

    def start(self) -> None:
        """Start the next child, and a timer for the following child, unless the model ends."""
        step = self.walk.step()
        kind, child, vertex, delay_us = self.kind, self._child, self.vertex, step.delay_us
        loop, log = self.host.loop, self.host.log
        place = "[_tgengenerator_generateNext]"
        if step.event is Event.END:
            log.info(
                f"[tgen-generator.c:533] {place}",
                f"Found {child} end observation on {kind} '{vertex}' after generating "
                f"{self.begun} {child}s.",
            )
            self._end_if_complete()
            return
        # Count the child first, because it may end while it starts, for example if its connection
        # is refused immediately.
        self.begun += 1
        if self.begin_child(self):
            log.info(
                f"[tgen-generator.c:509] {place}",
                f"Generated new {child} successfully on {kind} action '{vertex}'",
            )
        else:
            self.begun -= 1
            log.warning(
                f"[tgen-generator.c:512] {place}",
                f"Failed to create a {child} on {kind} action '{vertex}', delaying {delay_us} "
                "microseconds before the next try",
            )
        # The timer must not expire in this instant, because TGen's timers run for at least 1 ns.
        loop.at(loop.now_us + max(1, delay_us), self._next)
        log.info(
            "[tgen-generator.c:471] [_tgengenerator_setTimer]",
            f"Set timer of {delay_us} microseconds for {kind} '{vertex}'",
        )
        log.info(
            f"[tgen-generator.c:519] {place}",
            f"Generator for {kind} action '{vertex}' will generate the next {child} in "
            f"{delay_us} microseconds",
        )

    def _next(self) -> None:
        self.host.log.info(
            "[tgen-generator.c:449] [_tgengenerator_onTimerExpired]",
            f"Inter-event delay timer expired on {self.kind} '{self.vertex}'",
        )
        self.start()

    def child_over(self) -> None:
        """Count a child that has ended, successfully or not."""
        self.completed += 1
        if not self._end_if_complete():
            self.host.log.info(
                "[tgen-generator.c:309] [_tgengenerator_onCompleteHelper]",
                f"{self._status()} {self.kind} is still active",
            )

    def _end_if_complete(self) -> bool:
        if not self.walk.ended or self.completed < self.begun:
            return False
        self.host.log.message(_COMPLETE, f"{self._status()} {self.kind} is complete")
        self.host.count(f"{self.kind}s-succeeded")
        self.when_over()
        return True

    @property
    def _child(self) -> str:
        return "stream" if self.kind == "flow" else "flow"

    def _status(self) -> str:
        return (
            f"Generator status for action '{self.vertex}': completed {self.completed} of "
            f"{self.begun} {self._child}s,"
        )


@dataclass(eq=False)
class GraphWalk:
    """The walk of one host.

    Random choices (such as a stream's peer or a pause's length) depend only on the run's seed, the
    host's name, the vertex and the number of the visit. The n-th stream of a vertex thus has the
    same peer in every variant of Tor, independent of the durations of earlier streams. If the graph
    contains a seed, the random numbers from this seed are used as in TGen, in the order in which
    flows and streams start.
    """

    host: StreamHost
    graph: ActionGraph
    seed: int
    _visits: Counter[str] = field(default_factory=Counter)
    _pause_arrivals: Counter[str] = field(default_factory=Counter)
    # Like TGen, look up each of a graph's peers only once.
    _peer: Callable[[Peer], Address] = field(
        default_factory=lambda: functools.cache(Address.from_peer)
    )
    _instant_us: int = -1
    _ended_in_instant: int = 0

    def start(self) -> None:
        """Start the walk."""
        self.host.log.message(
            "[tgen-driver.c:819] [_tgendriver_onStartClientTimerExpired]",
            f"starting client using action graph '{self.graph.path}'",
        )
        self._continue_from(self.graph.start.id)

    # --- vertices

    def _continue_from(self, vertex: str) -> None:
        draw = 0.0
        if vertex in self.graph.choices:
            # Use 53 bits, which a float holds exactly, so that the result is less than 1.
            draw = (self._draw(vertex, "edge") >> 11) / 2**53
            self._visits[vertex] += 1
        for following in self.graph.following(vertex, draw):
            self.host.loop.soon(functools.partial(self._act, following))

    def _continue_later(self, vertex: str, delay_us: int) -> None:
        self.host.loop.at(
            self.host.loop.now_us + delay_us, functools.partial(self._continue_from, vertex)
        )

    def _act(self, vertex: str) -> None:
        action = self.graph.actions.get(vertex)
        if action is None:
            self._continue_from(vertex)
        elif isinstance(action, Pause):
            self._pause(action)
        elif action.kind == "traffic":
            self._start_traffic(action)
        elif action.kind == "flow":
            self._start_flow(action, functools.partial(self._continue_after, vertex))
        else:
            self._start_stream(action)

    def _pause(self, pause: Pause) -> None:
        if pause.times_us:
            time_us = pause.times_us[self._draw(pause.id, "time") % len(pause.times_us)]
            self._visits[pause.id] += 1
            if time_us:
                self._continue_later(pause.id, time_us)
                return
        else:
            self._pause_arrivals[pause.id] += 1
            if self._pause_arrivals[pause.id] < pause.incoming:
                return
            self._pause_arrivals[pause.id] = 0
        self._continue_from(pause.id)

    def _draw(self, vertex: str, what: str) -> int:
        """Return a hash below 2**64 of the seed, the host, the vertex, the visit and `what`.

        what: the purpose of the number, such as "peer".
        """
        label = (str(self.seed), self.host.name, vertex, str(self._visits[vertex]), what)
        digest = hashlib.shake_256("\x1f".join(label).encode()).digest(8)
        return int.from_bytes(digest, "big")

    # --- flows and traffics

    def _start_traffic(self, options: StreamOptions) -> None:
        def begin_flow(traffic: FlowGenerator) -> bool:
            self._start_flow(options, traffic.child_over)
            return True

        walk = MarkovWalk(options.flow_model, self._model_seed(options, "flow model"))
        when_over = functools.partial(self._continue_after, options.id)
        self._begin(FlowGenerator(self.host, walk, options.id, "traffic", begin_flow, when_over))

    def _start_flow(self, options: StreamOptions, when_over: Callable[[], None]) -> None:
        walk = MarkovWalk(options.stream_model, self._model_seed(options, "stream model"))
        # All streams of a flow share one proxy and one login, so that Tor may use one circuit for
        # them.
        options = self._with_login(options)
        proxy = self._proxy(options)

        def begin_stream(flow: FlowGenerator) -> bool:
            return self._open_stream(options, proxy, lambda stream: flow.child_over())

        self._begin(FlowGenerator(self.host, walk, options.id, "flow", begin_stream, when_over))

    def _begin(self, generator: FlowGenerator) -> None:
        self._visits[generator.vertex] += 1
        self.host.count(f"{generator.kind}s-created")
        generator.start()

    def _continue_after(self, vertex: str) -> None:
        """Continue the walk after a stream, flow or traffic vertex has ended.

        If many have ended at the same simulated time, first pause for 1 s. Without this pause,
        they could start and end forever while simulated time does not advance.
        """
        if self._instant_us != self.host.loop.now_us:
            self._instant_us = self.host.loop.now_us
            self._ended_in_instant = 0
        self._ended_in_instant += 1
        if self._ended_in_instant > ENDS_IN_AN_INSTANT:
            self._continue_later(vertex, HOLD_US)
        else:
            self._continue_from(vertex)

    # --- streams

    def _start_stream(self, options: StreamOptions) -> None:
        """Start a stream vertex, which TGen treats as a flow of one stream."""
        self.host.count("flows-created")
        options = self._with_login(options)
        if not self._open_stream(options, self._proxy(options), self._end_single_stream):
            self.host.count("flows-failed")
            self._log_single_stream(options.id, 0)
            self._continue_later(options.id, HOLD_US)

    def _end_single_stream(self, stream: StreamState) -> None:
        vertex, failed = stream.vertex, stream.fault != "NONE"
        self._log_single_stream(vertex, 1)
        # TGen counts the flow as successful even if its stream has failed.
        self.host.count("flows-succeeded")
        if failed and self.host.loop.now_us - stream.started < INSTANT_US:
            # TGen would retry immediately, and simulated time would never advance.
            self._continue_later(vertex, HOLD_US)
        else:
            self._continue_after(vertex)

    def _log_single_stream(self, vertex: str, streams: int) -> None:
        self.host.log.message(
            _COMPLETE,
            f"Generator status for action '{vertex}': completed {streams} of {streams} streams, "
            "flow is complete",
        )

    def _proxy(self, options: StreamOptions) -> Address | None:
        if not options.proxies:
            return None
        return self._peer(options.proxies[self._draw(options.id, "proxy") % len(options.proxies)])

    def _with_login(self, options: StreamOptions) -> StreamOptions:
        """Return a copy of the options with a new login for the proxy.

        Options without random logins are returned unchanged.
        """
        if options.logins is None:
            return options
        draw = options.logins.integer
        letters = [_LOGIN_LETTERS[draw() % len(_LOGIN_LETTERS)] for _ in range(_LOGIN_LENGTH)]
        return replace(options, username="".join(letters), password="".join(letters))

    def _model_seed(self, options: StreamOptions, what: str) -> int:
        """Return the seed of a new walk through a model.

        what: the argument of `_draw` for this model, which is used if the graph contains no seed.
        """
        if options.model_seeds is None:
            return self._draw(options.id, what) % 2**32
        return options.model_seeds.integer()

    def _open_stream(
        self, options: StreamOptions, proxy: Address | None, when_over: WhenOver
    ) -> bool:
        """Start a stream. Return False if the connection fails immediately."""
        vertex = options.id
        remote = self._peer(options.peers[self._draw(vertex, "peer") % len(options.peers)])
        model_seed = self._model_seed(options, "model")
        self._visits[vertex] += 1
        return self.host.open_stream(options, remote, proxy, model_seed, when_over)
