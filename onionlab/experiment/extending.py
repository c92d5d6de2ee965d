"""A file of an experiment, merged on top of all that it extends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from onionlab.experiment import values
from onionlab.experiment.finding import EXPERIMENTS, SUFFIX
from onionlab.experiment.seeds import with_networks
from onionlab.paths import is_file
from onionlab.yamlfile.reading import display_name, read_file
from onionlab.yamlfile.tree import Node, Problem, merge
from onionlab.yamlfile.units import nearest, show


class Reader:
    """Reads a file and what it extends; collects the files and the problems on the way."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.files: list[str] = []
        self.problems: list[Problem] = []

    def display(self, path: Path) -> str:
        """A file as messages name it."""
        return display_name(path, self.root)

    def read(self, path: Path, chain: tuple[Path, ...] = ()) -> Node | None:
        """The file on top of all it extends, without `extends`; None if nothing can be read."""
        file = self.display(path)
        if file not in self.files:
            self.files.append(file)
        tree, problems = read_file(path, file)
        self.problems += problems
        if tree is None:
            return None
        tree, twice = with_networks(tree)
        self.problems += twice
        chain = (*chain, path.resolve())
        bases = [
            base
            for node, parent in self._parents(tree, path)
            if (base := self._read_parent(node, parent, chain)) is not None
        ]
        merged = tree.without("extends")
        for base in reversed(bases):
            # Later names in the list win over earlier ones, the file itself over all.
            merged = merge(base, merged, replaced=values.REPLACED_AS_UNIT)
        return merged

    def _parents(self, tree: Node, path: Path) -> Iterator[tuple[Node, Path]]:
        entry = tree.get("extends")
        if entry is None:
            return
        items = [node for _, node in entry.children()] or [entry]
        for node in items:
            try:
                (parent,) = values.parse_file_names(node.value)
            except ValueError as error:
                self.problems.append(node.problem(str(error)))
                continue
            if parent.startswith(("./", "../")):
                yield node, path.parent / parent
            else:
                yield node, self.root / EXPERIMENTS / parent

    def _read_parent(self, node: Node, parent: Path, chain: tuple[Path, ...]) -> Node | None:
        if parent.resolve() in chain:
            circle = [*chain[chain.index(parent.resolve()) :], parent]
            way = " -> ".join(self.display(one) for one in circle)
            self.problems.append(node.problem(f"the files extend each other in a circle: {way}"))
            return None
        if not is_file(parent):
            folder = self.root / EXPERIMENTS
            names = [path.relative_to(folder).as_posix() for path in folder.rglob(f"*{SUFFIX}")]
            self.problems.append(
                node.problem(f"no file {show(node.value)}{nearest(str(node.value), sorted(names))}")
            )
            return None
        return self.read(parent, chain)
