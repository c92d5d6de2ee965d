"""The states and errors of a stream and of the transport below it, in TGen 1.1.2's words.

They are members of enums to the code and TGen's names to the log. What is compared at each arrival
of bytes has a name of its own in its module: looking a member up in its enum takes Python 3.11 four
times as long as the comparison.
"""

from __future__ import annotations

from enum import StrEnum


class TransportState(StrEnum):
    """How far a connection and the handshake with its proxy are (tgen-transport.c)."""

    CONNECT = "CONNECT"
    INIT = "INIT"
    CHOICE = "CHOICE"
    AUTH_REQUEST = "AUTH_REQUEST"
    AUTH_RESPONSE = "AUTH_RESPONSE"
    REQUEST = "REQUEST"
    RESPONSE_STATUS = "RESPONSE_STATUS"
    RESPONSE_TYPE = "RESPONSE_TYPE"
    RESPONSE_IPV4 = "RESPONSE_IPV4"
    RESPONSE_NAMELEN = "RESPONSE_NAMELEN"
    OPEN = "SUCCESS_OPEN"
    END_OF_FILE = "SUCCESS_EOF"
    ERROR = "ERROR"


class TransportFault(StrEnum):
    """What went wrong with a connection or with the handshake (tgen-transport.c)."""

    NONE = "NONE"
    CONNECT = "CONNECT"
    CHOICE = "CHOICE"
    AUTH = "AUTH"
    VERSION = "VERSION"
    STATUS = "STATUS"
    ADDRESS = "ADDR"
    READ = "READ"
    WRITE = "WRITE"
    TIMEOUT = "TIMEOUT"
    STALLOUT = "STALLOUT"


class SendState(StrEnum):
    """What a stream is to send next (tgen-stream.c). FOOTER waits for the other side's checksum."""

    NONE = "SEND_NONE"
    COMMAND = "SEND_COMMAND"
    RESPONSE = "SEND_RESPONSE"
    PAYLOAD = "SEND_PAYLOAD"
    CHECKSUM = "SEND_CHECKSUM"
    FOOTER = "SEND_FOOTER"
    SUCCESS = "SEND_SUCCESS"
    ERROR = "SEND_ERROR"


class ReceiveState(StrEnum):
    """What a stream expects next (tgen-stream.c)."""

    NONE = "RECV_NONE"
    AUTHENTICATE = "RECV_AUTHENTICATE"
    HEADER = "RECV_HEADER"
    MODEL = "RECV_MODEL"
    PAYLOAD = "RECV_PAYLOAD"
    CHECKSUM = "RECV_CHECKSUM"
    FOOTER = "RECV_FOOTER"
    SUCCESS = "RECV_SUCCESS"
    ERROR = "RECV_ERROR"


class StreamFault(StrEnum):
    """What went wrong with a stream (tgen-stream.c); a server tells some of them its client.

    PROXY: the transport did not come about, in whatever way. MISC: the kernel reports an error of
    the socket that neither reading nor writing met.
    """

    NONE = "NONE"
    PROXY = "PROXY"
    AUTH = "AUTH"
    HEADER = "HEADER"
    HEADER_INCOMPLETE = "HEADER_INCOMPLETE"
    HEADER_VERSION = "HEADER_VERSION"
    HEADER_MODEL_MODE = "HEADER_MODELMODE"
    HEADER_MODEL_PATH = "HEADER_MODELPATH"
    HEADER_MODEL_SIZE = "HEADER_MODELSIZE"
    MODEL = "MODEL"
    CHECKSUM = "CHECKSUM"
    FOOTER = "FOOTER"
    READ = "READ"
    END_OF_FILE = "READEOF"
    WRITE = "WRITE"
    TIMEOUT = "TIMEOUT"
    STALLOUT = "STALLOUT"
    MISC = "MISC"
