"""Write the configuration of Arti clients: conf/arti.toml, which all clients share.

Arti's `arti-example-config.toml` explains the keys of this file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from onionlab.engines.base import Process
from onionlab.experiment.tor_options import SOCKS_PORT
from onionlab.network.layout import Network
from onionlab.programs.arti import ArtiClient
from onionlab.rundir.keys import RelayKeys, ed25519_identity
from onionlab.rundir.torrc import OR_PORT

CONFIGURATION = "conf/arti.toml"

BOOTSTRAPPED = "Sufficiently bootstrapped; proxy now functional."
"""The line that Arti logs when its first circuits can be built."""

MAX_GUARD_SAMPLE = 20
"""The default of guard-min-filtered-sample-size in Arti and in C Tor: a client samples guards until
this many are usable."""

EXTRA_MEMORY_BYTES = 6 * 2**20
"""The measured memory of a client under load, in addition to the memory of a Tor process."""

HSDIR_INTERVAL_MIN = 120
"""How long onion services have the same directories, in minutes.

C Tor in a testing network ignores the parameter hsdir_interval and uses 24 times the
V3AuthVotingInterval of configs/tor/common.torrc (get_time_period_length in hs_common.c).
"""

# Without this variable, tokio would start a thread for each CPU of the machine.
_ENVIRONMENT = {"TOKIO_WORKER_THREADS": "1"}

_SETTINGS = f"""\
application.allow_running_as_root = true
proxy.socks_listen = "127.0.0.1:{SOCKS_PORT}"
logging.console = "info"
logging.time_granularity = "1ms"
# The folder of the host is the working directory. The engine sets its owner and permissions.
storage.cache_dir = "cache"
storage.state_dir = "state"
storage.port_info_file = ""
storage.permissions.dangerously_trust_everyone = true
# Servers have addresses that the Internet does not route, and all hosts share few subnets.
address_filter.allow_local_addrs = true
path_rules.ipv4_subnet_family_prefix = 33
path_rules.ipv6_subnet_family_prefix = 129
{{vanguards}}
# Without bandwidth-weights in the consensus, which Tor leaves out of small networks, Arti divides
# the weights of relays that serve directories (here all) by this scale, down to 0, and takes relays
# at random. With 1 the bandwidths count, as in C Tor. With bandwidth-weights, the scale changes the
# weights of all these relays by the same factor.
override_net_params.bwweightscale = 1
# The default depends on the memory of the machine.
system.memory.max = "1 GiB"
"""

_WITH_ONION_SERVICES = f"""\
# C Tor uses these vanguards by default, and this interval in testing networks.
vanguards.mode = "lite"
override_net_params.hsdir_interval = {HSDIR_INTERVAL_MIN}
"""
_WITHOUT_ONION_SERVICES = """\
# No client visits an onion service, and small networks have too few relays for vanguards.
vanguards.mode = "disabled"
"""


def arti_settings(network: Network, keys: Mapping[str, RelayKeys], seed: int) -> bytes:
    """Return the content of arti.toml, with which Arti bootstraps from the authorities.

    keys: the keys of authorities, by host, which were drawn with the seed.
    """
    authorities = network.by_role("authority")
    ports = [[f"{host.address}:{OR_PORT}"] for host in authorities]
    values: dict[str, object] = {"v3idents": [keys[host.name].v3_identity for host in authorities]}
    values |= dict.fromkeys(("uploads", "downloads", "votes"), ports)
    # If this value exceeds the number of guards, Arti logs each second that it found too few.
    guards = min(MAX_GUARD_SAMPLE, len(network.by_role("guard", "exitguard")))
    lines = [
        f"override_net_params.guard-min-filtered-sample-size = {guards}",
        "[tor_network.authorities]",
        *(f"{name} = {json.dumps(value)}" for name, value in values.items()),
    ]
    for host, its_ports in zip(authorities, ports, strict=True):
        lines += [
            "[[tor_network.fallback_caches]]",
            f'rsa_identity = "{keys[host.name].fingerprint}"',
            f'ed_identity = "{ed25519_identity(seed, host.name)}"',
            f"orports = {json.dumps(its_ports)}",
        ]
    has_services = bool(network.by_role("onion-service"))
    vanguards = _WITH_ONION_SERVICES if has_services else _WITHOUT_ONION_SERVICES
    return (_SETTINGS.format(vanguards=vanguards.strip()) + "\n".join(lines) + "\n").encode()


def arti_process(client: ArtiClient, start_ms: int) -> Process:
    """Return the process of a host's Arti, which starts after `start_ms` milliseconds."""
    arguments = ("proxy", "-c", f"../../../{CONFIGURATION}")
    return Process(
        client.program, arguments, start_ms, _ENVIRONMENT, extra_memory_bytes=EXTRA_MEMORY_BYTES
    )
