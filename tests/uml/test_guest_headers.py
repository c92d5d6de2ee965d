"""The numbers of the kernel's interface have the values that Linux's headers give their names."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from onionlab.engines.uml.guest import bpf, netlink

HEADERS = (
    *("asm/unistd_64.h", "linux/bpf.h", "linux/bpf_common.h", "linux/if.h", "linux/if_addr.h"),
    *("linux/if_ether.h", "linux/if_link.h", "linux/neighbour.h", "linux/netlink.h"),
    *("linux/pkt_cls.h", "linux/pkt_sched.h", "linux/rtnetlink.h", "linux/veth.h"),
)
# A name in a header -> how it is spelt here.
RESPELT = {"__NR_bpf": "_NR_BPF"}
NOT_IN_A_HEADER = {"_FILTER_HANDLE", "_FILTER_PRIORITY", "_IPV4_BITS"}
# Linux 5.18.
NEWER_THAN_SOME_HEADERS = {"BPF_SKB_TSTAMP_DELIVERY_MONO", "BPF_FUNC_skb_set_tstamp"}


def constants(module: ModuleType) -> dict[str, int]:
    """The numbers of a module by their names in the headers."""
    spelling = {here: there for there, here in RESPELT.items()}
    found = {}
    for name, value in vars(module).items():
        if not isinstance(value, int) or name in NOT_IN_A_HEADER or name.endswith("_BYTES"):
            continue
        name = spelling.get(name, name.removeprefix("_"))
        function = re.fullmatch(r"(BPF_FUNC_)(.*)", name)
        found[function[1] + function[2].lower() if function else name] = value
    return found


def in_headers(names: set[str], folder: Path) -> dict[str, int]:
    """The values that the headers give; without the names that they do not know."""
    lines = [f"#include <{header}>" for header in ("stdio.h", *HEADERS)]
    lines.append("int main(void) {")
    lines += [f'  printf("{name} %u\\n", (unsigned) {name});' for name in sorted(names)]
    source = folder / "names.c"
    source.write_text("\n".join([*lines, "  return 0;", "}", ""]))
    command = ["gcc", "-fmax-errors=0", "-o", str(folder / "names"), str(source)]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    unknown = set(re.findall(r".(\w+). undeclared", compiled.stderr))
    if unknown:
        return in_headers(names - unknown, folder)
    assert compiled.returncode == 0, compiled.stderr
    said = subprocess.run([folder / "names"], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in map(str.split, said.splitlines())}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("module", [netlink, bpf], ids=["netlink", "bpf"])
def test_names_and_numbers_are_those_of_the_headers(module: ModuleType, tmp_path: Path) -> None:
    ours = constants(module)
    theirs = in_headers(set(ours), tmp_path)
    assert ours.keys() - theirs.keys() <= NEWER_THAN_SOME_HEADERS
    assert {name: ours[name] for name in theirs} == theirs
    assert len(theirs) > 30
