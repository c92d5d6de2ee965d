"""The choice of the engine, and the requirements of the embedded one. No kernel is built."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onionlab import engines
from onionlab.engines.base import Process
from onionlab.engines.uml import memory
from onionlab.engines.uml.bootcheck import IN_PROCESSES
from onionlab.engines.uml.engine import CONFIGURATION, UmlEngine, python_code
from onionlab.engines.uml.guest import description
from onionlab.engines.uml.kernel import BuiltKernel
from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.network.layout import Link
from onionlab.paths import working_root
from uml.guest_support import Net

ROOT = working_root()
NO_KERNEL = BuiltKernel(Path("/nonexistent/linux"), "6.12.0", "00")


@pytest.fixture
def small_net() -> Net:
    net = Net(packet_loss=0.01, options={"congestion_control": "reno", "memory_bytes": None})
    net.host("a")
    net.host("b", place="place-a")
    net.host("c")
    net.run("a", "facts")
    return net


@pytest.fixture
def replace_engines(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that replaces all engines by those that its arguments name.

    NAME=True is an engine that is installed, and NAME=False is one that is not installed.
    """

    def offer(**there: bool) -> None:
        def open_it(name: str, *_arguments: object) -> SimpleNamespace:
            if not there[name]:
                raise UserError(f"{name} is not installed", "install it")
            return SimpleNamespace(name=name)

        kinds = {name: SimpleNamespace(open=partial(open_it, name)) for name in there}
        monkeypatch.setattr(engines, "ENGINES", kinds)

    for variable in ("SHADOW", "TGEN"):
        monkeypatch.delenv(variable, raising=False)
    return offer


@pytest.mark.parametrize(
    ("shadow", "chosen", "why"),
    [(True, "shadow", "which is installed"), (False, "uml", "shadow is not installed")],
)
def test_auto_selects_shadow_if_it_is_installed(
    replace_engines: Callable[..., None],
    shadow: bool,
    chosen: str,
    why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    replace_engines(shadow=shadow, uml=True)
    assert engines.open_engine("auto", root=ROOT).name == chosen
    (message,) = caplog.messages
    assert message.startswith(f"engine: {chosen}")
    assert why in message


def test_a_specified_shadow_is_never_replaced(
    replace_engines: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_engines(shadow=False, uml=True)
    with pytest.raises(UserError, match="shadow is not installed"):
        engines.open_engine("auto", root=ROOT, shadow="/nowhere/shadow")
    monkeypatch.setenv("SHADOW", "/nowhere/shadow")
    with pytest.raises(UserError, match="shadow is not installed"):
        engines.open_engine("auto", root=ROOT)
    assert engines.open_engine("uml", root=ROOT).name == "uml"


def test_a_requested_engine_is_never_replaced(replace_engines: Callable[..., None]) -> None:
    replace_engines(shadow=True, uml=False)
    with pytest.raises(UserError, match="uml is not installed"):
        engines.open_engine("uml", root=ROOT)
    with pytest.raises(UserError, match="unknown engine 'qemu'"):
        engines.open_engine("qemu", root=ROOT)


def test_an_environment_variable_selects_ptrace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onionlab.engines.uml.kernel.ensure_kernel", lambda *_, **__: NO_KERNEL)
    simulation = Net().simulation(stop_ms=1000)

    def words() -> list[str]:
        engine = engines.open_engine("uml", root=ROOT)
        assert isinstance(engine, UmlEngine)
        return engine._command(simulation, 2**28, tmp_path)

    monkeypatch.delenv(engines.PTRACE_VARIABLE, raising=False)
    assert IN_PROCESSES in words()
    monkeypatch.setenv(engines.PTRACE_VARIABLE, "1")
    assert IN_PROCESSES not in words()


def test_the_identity_contains_the_kernel() -> None:
    one = UmlEngine(NO_KERNEL).identity
    assert one["name"] == "uml"
    assert UmlEngine(replace(NO_KERNEL, sha256="01")).identity != one
    assert all(isinstance(value, str) for value in one.values())


def test_the_hash_of_the_engine_is_of_its_code_alone() -> None:
    code = 'def f():\n    "Docstring."\n    return 1 # comment\n\nx = 2\n"""Of x."""\n'
    assert python_code(code) == python_code("def f():\n    return 1\n\n\nx = 2\n")
    assert python_code(code) != python_code(code.replace("return 1", "return 2"))


def test_options_of_the_embedded_engine_are_checked(tmp_path: Path) -> None:
    def settings(text: str) -> Any:
        path = tmp_path / "one.yaml"
        path.write_text(f"extends: {ROOT}/experiments/quick.yaml\nengine: {{uml: {{{text}}}}}\n")
        (level,) = load(str(path), root=ROOT).levels.values()
        return level.settings.engine.uml

    assert settings("").memory_bytes is None
    assert settings("memory: 2 GiB").memory_bytes == 2 * 2**30
    assert settings("memory: automatic").memory_bytes is None
    assert settings("stall_timeout: 5 min").stall_timeout_s == 300
    for wrong in ("memory: much", "stall_timeout: 0 s", "congestion_control: bbr", "mem: 1 GiB"):
        with pytest.raises(UserError):
            settings(wrong)


def test_the_guest_gets_memory_by_the_size_of_its_simulation(small_net: Net) -> None:
    small = memory.guest_bytes(small_net.simulation(5000), None)
    for number in range(400):
        small_net.host(f"x{number}")
        small_net.run(f"x{number}", "facts")
    large = memory.guest_bytes(small_net.simulation(5000), None)
    assert small >= 512 * 2**20  # with less than 300 MiB of memory, Tor does not serve directories
    assert large > small + 400 * memory.TOR_BYTES
    assert memory.guest_bytes(small_net.simulation(5000), 2**30) == 2**30


def test_too_little_memory_is_an_error_before_the_start(
    small_net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = small_net.simulation(5000)
    for variable in ("TMPDIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UserError, match="needs up to") as caught:
        memory.memory_folder(simulation, 2**50)
    assert "shm-size" in (caught.value.hint or "")
    monkeypatch.setattr(memory, "file_system_type", lambda _folder: "ext4")
    with pytest.raises(UserError, match="no file system in memory"):
        memory.memory_folder(simulation, 2**20)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=50 * 2**20))
    with pytest.raises(UserError, match="the machine has 50 MiB available"):
        memory.memory_folder(simulation, 2**30)


def description_of(net: Net, kernel: BuiltKernel = NO_KERNEL) -> bytes:
    return UmlEngine(kernel).configuration(net.simulation(5000))[CONFIGURATION]


def test_the_description_is_the_simulation_and_nothing_of_the_machine(small_net: Net) -> None:
    found = description_of(small_net)
    assert description_of(small_net, replace(NO_KERNEL, path=Path("/other/linux"))) == found
    data = json.loads(found)
    assert (data["packet_loss"], data["congestion_control"]) == (0.01, "reno")
    # Absent properties are omitted.
    assert not {"path_loss", "bootstrap_end_ms"} & data.keys()
    assert "runs_to_end" not in data["hosts"][0]["programs"][0]
    # The losses of single paths are omitted if they all equal the network's packet loss.
    small_net.path_loss[frozenset(("place-a",))] = small_net.packet_loss
    assert description_of(small_net) == found


def test_the_description_contains_single_links_losses_and_ends(
    small_net: Net, tmp_path: Path
) -> None:
    small_net.bootstrap_end_ms = 3000
    small_net.path_loss[frozenset(("place-a", "place-c"))] = 0.5
    small_net.path_loss[frozenset(("place-a",))] = 0.0
    small_net.host("d", place="place-c", link=Link(7, 8), address="9.9.9.9")
    small_net.run("d", "fail", "0", runs_to_end=False)
    content = description_of(small_net)
    data = json.loads(content)
    assert data["path_loss"] == [[0.0, 0.5], [0.5, 0.01]]
    assert data["bootstrap_end_ms"] == 3000
    added = data["hosts"][3]
    assert (added["address"], added["up_bit_per_s"], added["down_bit_per_s"]) == ("9.9.9.9", 7, 8)
    assert added["programs"][0]["runs_to_end"] is False
    # The guest reads what the engine has written.
    (tmp_path / "uml.json").write_bytes(content)
    described = description.read_description(tmp_path / "uml.json")
    losses = [[described.loss(one, other) for other in (0, 1)] for one in (0, 1)]
    assert losses == data["path_loss"]
    assert described.bootstrap_end_ms == 3000
    assert [host.programs[0].runs_to_end for host in described.hosts if host.programs] == [
        *(True, False)
    ]


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"arguments": ("one.graphml", "two.graphml")}, "one argument"),
        ({"arguments": ()}, "one argument"),
        ({"environment": {"TGENSOCKS": "127.0.0.1:9050"}}, "does not support TGENSOCKS"),
        ({"environment": {"TGENHOSTNAME": "other"}}, "does not support TGENHOSTNAME"),
        ({"environment": {"TGENIP": "localhost"}}, "needs an IPv4 address in TGENIP"),
        ({"runs_to_end": False}, "cannot end before the simulation"),
    ],
)
def test_unsupported_traffic_is_rejected(
    small_net: Net, changes: dict[str, Any], wrong: str
) -> None:
    good = Process("tgen", ("graph.graphml",), 1000, {"TGENIP": "127.0.0.1", "OTHER": "x"})
    small_net.processes["c"] = [good]
    description_of(small_net)
    small_net.processes["c"] = [replace(good, **changes)]
    with pytest.raises(UserError, match=wrong) as caught:
        description_of(small_net)
    assert "host c" in caught.value.message
