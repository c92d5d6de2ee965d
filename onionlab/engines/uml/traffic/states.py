"""The states and errors of a stream and of its transport, with TGen 1.1.2's names.

The code uses enum members, and the log uses TGen's names. Modules have constants for members that
are compared at each arrival of bytes: in Python 3.11, looking up an enum member takes four times as
long as the comparison.
"""

from __future__ import annotations

from enum import StrEnum


class TransportState(StrEnum):
    """The state of a connection and of the handshake with its proxy (tgen-transport.c)."""

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
    """The error of a connection or of the handshake (tgen-transport.c)."""

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
    """The next message of a stream (tgen-stream.c). FOOTER waits for the other side's checksum."""

    NONE = "SEND_NONE"
    COMMAND = "SEND_COMMAND"
    RESPONSE = "SEND_RESPONSE"
    PAYLOAD = "SEND_PAYLOAD"
    CHECKSUM = "SEND_CHECKSUM"
    FOOTER = "SEND_FOOTER"
    SUCCESS = "SEND_SUCCESS"
    ERROR = "SEND_ERROR"


class ReceiveState(StrEnum):
    """The message that a stream expects next (tgen-stream.c)."""

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
    """The error of a stream (tgen-stream.c). A server reports some of them to its client.

    PROXY: the transport could not be established. MISC: the kernel reports a socket error that
    neither reading nor writing encountered.
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
