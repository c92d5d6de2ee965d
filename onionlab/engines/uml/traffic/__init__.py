"""One process that replaces all TGen clients and servers of a simulation.

The driver reads the same graphs as TGen, speaks TGen 1.1.2's protocol on the wire and writes TGen's
log lines, so neither Tor nor the analysis can distinguish it from TGen. It uses only the standard
library and as few system calls as possible: inside User-Mode Linux, a system call costs as much as
hundreds of steps of Python.

Differences from TGen:

- Only the part of the graph language that ``action_graph.py`` describes is supported; other graphs
  are rejected.
- A random choice is a function of seed, host, vertex and number of the visit (``graph_walk.py``),
  not the next number of a random generator. However, a graph's ``markovmodelseed`` and
  ``socksauthseed`` result in the same walks and logins as in TGen.
- A walk pauses for one second after a stream that fails within a millisecond, and after each
  stream, flow or traffic that ends after 1000 others in the same instant. TGen would continue
  immediately, and in virtual time it might continue forever without time passing.
- Timers are up to a millisecond late. The clock is read once per turn of the event loop, so
  intervals in which TGen itself works for some microseconds are 0.
- Both ends of a stream are this driver: the payload's MD5 sum is sent but not compared, and a
  message that TGen would not send ends the stream with the error HEADER or AUTH, without an answer.
- A sender passes more bytes to the kernel at once than TGen, so it logs an earlier time for the
  last sent byte (usecs-to-last-byte-send).
- total-bytes-recv counts every byte; TGen subtracts 1 for each read that would have blocked.
- If a stream fails and its last bytes were read at a heartbeat, the time of the last byte is
  accurate to the kernel's clock tick. All other times are exact.
- A graph with only one of the sizes ``sendsize`` and ``recvsize`` is rejected, because in TGen such
  a stream continues until it stalls. Sizes of 0 are rejected as well, and so are faulty Markov
  models with which TGen would abort or never stop sending (``markov_model.py``).
- If a client requests a model by path, the server does not read this path. It uses the model that
  the clients' graphs loaded from there.
"""
