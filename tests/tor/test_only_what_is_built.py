"""With `no_builds`, finished builds are used and no build starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from onionlab.programs import building
from onionlab.programs.apt import PrivateApt
from onionlab.programs.building import NotBuiltError, no_builds
from onionlab.programs.tor.build import ensure_series

from .test_build import compiled


def test_finished_builds_are_used(
    checkout: Path, tiny_tarball: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with no_builds():
        built = ensure_series(checkout, ["greeting"], tor_source=str(tiny_tarball))
    assert built["greeting"].path.is_file()
    assert caplog.messages == []


def test_missing_builds_are_not_started(
    new_checkout: Path, tiny_tarball: Path, caplog: pytest.LogCaptureFixture
) -> None:
    message = "build/tor does not contain all builds that are needed"
    with no_builds(), pytest.raises(NotBuiltError, match=message):
        ensure_series(new_checkout, ["greeting"], tor_source=str(tiny_tarball))
    assert compiled(caplog) == []
    # The attempt leaves only an empty log.
    left = {path.name for path in (new_checkout / "build/tor").iterdir()}
    assert left <= {".lock", "logs"}
    # Builds are allowed again after the block.
    building.ensure_building_allowed("nothing")


def test_nothing_is_fetched(tmp_path: Path) -> None:
    with no_builds(), pytest.raises(NotBuiltError, match="Tor's source is missing"):
        PrivateApt(tmp_path, tmp_path / "log", "Tor's source", sources=True, hint="")
    assert list(tmp_path.iterdir()) == []


def test_builds_side_by_side_are_bound_by_it_too() -> None:
    def refused() -> str:
        with pytest.raises(NotBuiltError):
            building.ensure_building_allowed("it")
        return "refused"

    with no_builds():
        assert building.run_concurrently(refused, refused) == ("refused", "refused")
    building.run_concurrently(lambda: building.ensure_building_allowed("it"), lambda: None)
