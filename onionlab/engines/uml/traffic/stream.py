"""One stream: TGen's protocol over a transport, on the side of a client or of a server.

stream_state.py defines the states of a stream and how it ends, receiving.py handles incoming bytes,
and sending.py handles outgoing bytes. In a simulation both ends of a stream are this driver, so
invalid messages are not expected. They just end the stream with the error AUTH or HEADER.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import Literal

from . import wire
from .action_graph import Start, StreamOptions
from .markov_model import INTERNAL_PACKET_MODEL, Event, MarkovModel, parse_model
from .markov_walk import MarkovWalk, PacketSchedule
from .receiving import Receiver
from .sending import Sender
from .stream_state import ReceiveState, StreamHost, StreamState, WhenOver
from .transport import HandshakeError, Transport

MAX_LINE_BYTES = 1 << 16

_DONTWAIT = int(socket.MSG_DONTWAIT)
_HANGUP = select.EPOLLHUP | select.EPOLLERR
_TO_THE_END = _HANGUP | select.EPOLLRDHUP
_READABLE = select.EPOLLIN | _TO_THE_END


class Stream(StreamState):
    """A stream in progress. `on_event` handles epoll's events of its socket (edge-triggered).

    options: the options of a client's stream or, on the server's side, of the start vertex.
    model_seed: the seed of the packet model, which a server receives from the client.
    """

    send: Sender
    receive: Receiver

    def __init__(
        self,
        host: StreamHost,
        transport: Transport,
        stream_id: int,
        options: StreamOptions | Start,
        model_seed: int = 0,
        when_over: WhenOver | None = None,
    ) -> None:
        self.options = options if isinstance(options, StreamOptions) else None
        vertex = "passive-stream" if self.options is None else self.options.id
        super().__init__(host, transport, stream_id, vertex, when_over)
        self._model_seed = model_seed
        self._timeout_us = options.timeout_us
        self._stallout_us = options.stallout_us
        self._command: wire.Command | None = None
        if self.options is None:
            self.send = Sender(self, "NONE", 0)
            self.receive = Receiver(self, "AUTHENTICATE", 0)
        else:
            self.send = Sender(self, "COMMAND", self.options.send_bytes)
            self.receive = Receiver(self, "NONE", self.options.recv_bytes)
            self._use_model(self.options.packet_model, Event.TO_SERVER)

    def _use_model(self, model: MarkovModel, mine: Event) -> None:
        """Send according to a packet model.

        If the payload's size is given, TGen's default model is ignored, because it has no pauses.
        mine: the event of the model for a packet that this side sends.
        """
        if model is not INTERNAL_PACKET_MODEL or not self.send.wanted_bytes:
            self.schedule = PacketSchedule(MarkovWalk(model, self._model_seed), mine)

    # --- events

    def begin(self) -> None:
        """Proceed as far as possible after connect() or accept(), without waiting for an event."""
        if self.options is None:
            self._connected()
        elif self.transport.greeting:
            # Over loopback a connection is established immediately. If it is not yet established,
            # sending the greeting raises BlockingIOError.
            self._try_greeting()
        else:
            self.want_writable()

    def on_event(self, events: int) -> None:
        """Handle epoll's events of the socket."""
        if self.transport.state == "CONNECT":
            if events & _HANGUP:
                self.fail_transport("CONNECT")
            elif events & select.EPOLLOUT:
                self._connected()
                self.send.flush()
            return
        if events & _READABLE:
            self.receive.read(to_the_end=bool(events & _TO_THE_END))
        if not self.over and events & (select.EPOLLOUT | _HANGUP):
            if events & _HANGUP:
                self.send.end_pause()
            self.send.flush()
            # An answer may have arrived before the whole request was sent. Process it now, because
            # it is already in the buffer and no event will report it.
            self.process()
        if not self.over and events & _HANGUP:
            if self.receive.state not in ("NONE", "SUCCESS"):
                self.receive.state = "ERROR"
            self.fail("MISC")

    def on_heartbeat(self) -> None:
        """Read payload that did not wake up the process. End a stream that timed out or stalled."""
        self.receive.drain()
        if self.over:
            return
        age_us = self.now_us - self.started
        connecting = self.transport.state == "CONNECT"
        stalled = 0 < self._stallout_us <= age_us if connecting else self._has_stalled()
        if not stalled and not 0 < self._timeout_us <= age_us:
            return
        fault: Literal["STALLOUT", "TIMEOUT"] = "STALLOUT" if stalled else "TIMEOUT"
        if connecting:
            self.transport.fault = fault
        self.fail("PROXY" if connecting else fault)

    def _has_stalled(self) -> bool:
        since = self.receive.last_wake_up()
        if since is None or not 0 < self._stallout_us <= self.now_us - since:
            return False
        self.receive.correct_drained_times()
        return self.progress is not None and self.now_us - self.progress >= self._stallout_us

    # --- the transport

    def _try_greeting(self) -> None:
        """Greet the proxy if the connection is already established, as it is over loopback."""
        try:
            sent = self.sock.send(self.transport.greeting, _DONTWAIT)
        except BlockingIOError:
            self.want_writable()
        except OSError:
            self.fail_transport("CONNECT")
        else:
            self._connected()
            self.send.count_message(sent)

    def _connected(self) -> None:
        """Handle an established connection to the proxy or to the other TGen."""
        self.progress = self.now_us
        self.transport.connected(self.progress)
        if self.transport.greeting:
            self.send.next(self.transport.greeting)
        else:
            self._open()

    def _process_answer_of_proxy(self) -> None:
        try:
            message = self.transport.received(self.receive.buffer, self.now_us)
        except HandshakeError as error:
            if error.warning:
                self.host.log.warning(*error.warning)
            self.fail_transport(error.fault)
            return
        if message:
            self.send.next(message)
            self.send.flush()
        elif self.transport.state == "SUCCESS_OPEN":
            self.receive.total_bytes = len(self.receive.buffer)
            self._open()

    def _open(self) -> None:
        """Start TGen's protocol on the established connection to the other TGen."""
        self.progress = self.now_us
        if self.options is not None:
            self.send.next(wire.command(self.host.name, self.options, self._model_seed))
            self.send.flush()

    def read_failed(self, error: OSError) -> None:
        """End the stream with a read error."""
        if self.transport.state != "SUCCESS_OPEN":
            self.fail_transport("READ")
            return
        super().read_failed(error)
        # A server is usually writing when a connection breaks. TGen then writes again, and logs the
        # error of this write.
        if self.send.state in ("RESPONSE", "PAYLOAD", "CHECKSUM"):
            self.send.end_pause()
            self.send.flush()
        if not self.over:
            self.fail("READ")

    # --- the protocol

    def process(self) -> None:
        """Advance through the states as far as the received bytes allow."""
        buffer = self.receive.buffer
        while not self.over:
            before = (self.transport.state, self.receive.state, len(buffer))
            if self.transport.state != "SUCCESS_OPEN":
                self._process_answer_of_proxy()
            elif (step := _STEPS.get(self.receive.state)) is not None:
                step(self)
            if (self.transport.state, self.receive.state, len(buffer)) == before:
                return

    def _take_line(self) -> bytes | None:
        """Remove a line from the buffer and return it without its newline.

        Return None if the line is incomplete. If it is too long, end the stream and return None.
        """
        buffer = self.receive.buffer
        end = buffer.find(b"\n", 0, MAX_LINE_BYTES)
        if end < 0:
            if len(buffer) >= MAX_LINE_BYTES:
                self.fail_to_receive("HEADER")
            return None
        line = bytes(buffer[:end])
        del buffer[: end + 1]
        return line

    def _process_password(self) -> None:
        buffer = self.receive.buffer
        available = bytes(buffer[: len(wire.AUTH_BYTES)])
        if available != wire.AUTH_BYTES[: len(available)]:
            self.fail_to_receive("AUTH")
        elif len(available) == len(wire.AUTH_BYTES):
            del buffer[: len(available)]
            self.receive.state = "HEADER"

    def _process_header(self) -> None:
        line = self._take_line()
        if line is None:
            return
        try:
            if self.options is None:
                command = self._command = wire.parse_command(line)
                self.peer_name = command.hostname
            else:
                self.peer_name = wire.parse_response(line)
                self.response_at = self.now_us
                self.receive.state = "PAYLOAD"
                return
        except (KeyError, ValueError):
            self.fail_to_receive("HEADER")
            return
        self.vertex = f"{self.vertex}:{command.transfer_id}"
        self.receive.wanted_bytes = command.receive_bytes
        self.send.wanted_bytes = command.send_bytes
        self._model_seed = command.model_seed
        self.receive.state = "MODEL"
        self._process_model()

    def _process_model(self) -> None:
        """As a server, select the packet model and answer."""
        command, buffer = self._command, self.receive.buffer
        assert command is not None
        model = INTERNAL_PACKET_MODEL
        try:
            if command.model_path is not None:
                model = self.host.packet_models[command.model_path]
            elif len(buffer) < command.model_bytes:
                return
            else:
                text = bytes(buffer[: command.model_bytes])
                del buffer[: command.model_bytes]
                self.command_at = self.now_us
                if command.model_name != INTERNAL_PACKET_MODEL.name:
                    model = parse_model(command.model_name, text)
        except (KeyError, ValueError):
            self.fail_to_receive("HEADER")
            return
        self._use_model(model, Event.TO_ORIGIN)
        self.send.state = "RESPONSE"
        self.send.next(wire.response(self.host.name))
        self.receive.state = "PAYLOAD"
        self.send.flush()

    def _process_checksum(self) -> None:
        if self._take_line() is not None:
            self.receive.checksum_at = self.now_us
            self.receive.state = "FOOTER"
            self.send.flush()

    def _process_footer(self) -> None:
        if self._take_line() is not None:
            self.receive.state = "SUCCESS"
            self.send.flush()
            self.end_if_complete()


_STEPS: dict[ReceiveState, Callable[[Stream], None]] = {
    "AUTHENTICATE": Stream._process_password,
    "HEADER": Stream._process_header,
    "MODEL": Stream._process_model,
    "PAYLOAD": lambda stream: stream.receive.take_payload(),
    "CHECKSUM": Stream._process_checksum,
    "FOOTER": Stream._process_footer,
}
