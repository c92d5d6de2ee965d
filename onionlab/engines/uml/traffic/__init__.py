"""One process that replaces all TGen clients and servers of a simulation.

It reads the same graphs as TGen, speaks TGen 1.1.2's protocol on the wire and writes TGen's log
lines, so neither Tor nor the analysis can distinguish the two. It uses only the standard library
and as few system calls as possible: inside User-Mode Linux, one costs as much as hundreds of steps
of Python.

Differences from TGen:

- Only the part of the graph language that ``action_graph.py`` describes is supported; other graphs
  are rejected.
- Draws are functions of seed, host, vertex and visit (``host.py``) instead of numbers of a random
  generator. However, a graph's ``markovmodelseed`` and ``socksauthseed`` result in the same walks
  and logins as in TGen.
- A pause of one second follows a stream that fails within a millisecond, and the thousandth stream
  that ends in one instant. TGen would continue immediately, in virtual time forever.
- Timers are up to a millisecond late. The clock is read once per turn of the event loop, so
  intervals that TGen measures as some microseconds of its own work are 0.
- Both ends of a stream are this driver: the payload's MD5 sum is sent but not compared, and a
  message that TGen would not send has the error HEADER or AUTH, without an answer.
- A server passes more bytes to the kernel at once than TGen, so its own last-byte-send is earlier.
- total-bytes-recv counts every byte; TGen subtracts 1 for each read that would have blocked.
- In a failed stream, the time of a last byte that was read at a heartbeat is accurate to the
  kernel's clock tick. All other times are exact.
- A graph or a command with only one of the two sizes is rejected: in TGen such a stream continues
  until it stalls. A size of 0 in a graph is rejected, and so are Markov models with which TGen
  would abort or send forever (``markov_model.py``).
- If a client requests a model by path, the server uses the model that clients' graphs have at that
  path.
"""
