"""One process in the place of all TGen clients and servers of a simulation.

It reads the graphs that TGen would read, speaks TGen 1.1.2's protocol on the wire and writes TGen's
log lines, so that neither Tor nor the analysis can tell the two apart. Only the standard library is
used, and as few system calls as possible: inside User-Mode Linux one costs as much as hundreds of
steps of Python. How to start it: ``__main__.py``; its input: ``traffic_file.py``.

What differs from TGen:

- Only the part of the graph language that ``action_graph.py`` names is played, the rest is refused.
- Draws are functions of seed, host, vertex and visit (``host.py``), not of a random generator; but
  a graph's ``markovmodelseed`` and ``socksauthseed`` give the same models' walks and the same
  logins as in TGen.
- A stream that fails within a millisecond is followed by a second of rest, and so is the thousandth
  stream that ends in one instant. TGen would go on at once; in virtual time forever.
- Timers are up to a millisecond late; the clock is read once per turn of the event loop, so that
  what TGen measures as some microseconds of its own work is 0.
- The payload's MD5 sum is sent, but compared only if the traffic file says so; its length always.
- A server hands the kernel more at once than TGen, so its own last-byte-send is earlier.
- total-bytes-recv counts every byte; TGen subtracts 1 for each read that would have blocked.
- In a failed stream the time of a last byte that a heartbeat found waiting is good to the kernel's
  clock tick; all other times are exact.
- A graph or a command that has only one of the two sizes is refused: in TGen such a stream goes on
  until it stalls. So is a size of 0 in a graph, and so are Markov models by which TGen would abort
  or send on forever (``markov_model.py``).
- A server that is asked for a model by path takes the one that a client's graph has at that path.
"""
