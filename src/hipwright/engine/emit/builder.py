"""Builds a kernel's tree (tree.py) statement by statement, and knows which names a block has taken."""

from __future__ import annotations

import re
from functools import lru_cache

from hipwright.engine.emit.device_code import reserved
from hipwright.engine.emit.tree import BracedBlock, Node, Passage, PreprocessorBranch, Section, Statement
from hipwright.engine.ir.expr import BIT_WORD, E

LONGEST = 28
"""Characters of a name from which on its last words stand for it: a parameter of a block in a block in a network."""


def element_text(pointer: str, position: str, dtype: str) -> str:
    """A load of an element, as C; of a word of bits (ir/expr.py) by its function."""
    return f"load_bit_word({pointer} + {position})" if dtype == BIT_WORD else f"{pointer}[{position}]"


@lru_cache(maxsize=1 << 14)
def cname(name: str) -> str:
    """A C identifier for a buffer or value, clear of functions and keywords."""
    clean = re.sub(r"\W", "_", name)
    clean = re.sub(r"^(p|b|c)_(?=[A-Za-z_]{2})", "", clean)
    if len(clean) > LONGEST:
        words = clean.split("_")
        while len(words) > 1 and (len("_".join(words)) > LONGEST - 8 or not words[0] or words[0][0].isdigit()):
            words.pop(0)
        clean = "_".join(words)
    return f"{clean}_" if clean in reserved() or clean[:1].isdigit() else clean


class StatementBuilder:
    """Adds statements to the innermost open block.

    scopes: the names of expressions, one table a block, expression id -> name; (condition id, expression id) -> name
    where the name holds the expression only under the condition.
    """

    def __init__(self) -> None:
        self.body: list[Node] = []
        self.scopes: list[dict[int | tuple[int, int], str]] = [{}]
        self.taken: set[str] = set()
        self._current = self.body
        self._open: list[tuple[BracedBlock | PreprocessorBranch, list[Node]]] = []  # and the nodes around each

    def line(self, text: str) -> None:
        """One line."""
        self._current.append(Statement(text))

    def line_if_used(self, text: str) -> None:
        """A declaration `type name = value;` that is dropped where nothing after it in its block uses the name."""
        self._current.append(Statement(text, text.split(" = ")[0].split()[-1]))

    def passage(self, text: str) -> None:
        """Several lines of C, written elsewhere with their own indentation."""
        self._current.append(Passage(text.strip("\n")))

    def section(self) -> Section:
        """A place among the statements, to be filled later."""
        made = Section()
        self._current.append(made)
        return made

    # ------------------------------------------------------------ blocks

    def open(self, header: str) -> None:
        """A block with a scope of its own; header: what stands before the brace, or ""."""
        self._enter(BracedBlock([(Statement(header), [])]))
        self.scopes.append({})

    def otherwise(self) -> None:
        """The other side of an open `if`."""
        block, _ = self._open[-1]
        assert isinstance(block, BracedBlock)
        self._next_arm(block, "else")
        self.scopes[-1] = {}

    def close(self, suffix: str = "") -> None:
        """End of the block; suffix: what follows the brace."""
        block, self._current = self._open.pop()
        assert isinstance(block, BracedBlock)
        block.suffix = suffix
        self.scopes.pop()

    def directive(self, text: str) -> None:
        """`#if ...`, `#elif ...`, `#else` or `#endif`: a preprocessor conditional around the statements between."""
        if text.startswith("#if"):
            self._enter(PreprocessorBranch([(Statement(text), [])]))
            return
        branch = self._open[-1][0]
        assert isinstance(branch, PreprocessorBranch), text
        if text == "#endif":
            self._current = self._open.pop()[1]
        else:
            self._next_arm(branch, text)

    def _enter(self, node: BracedBlock | PreprocessorBranch) -> None:
        self._current.append(node)
        self._open.append((node, self._current))
        self._current = node.arms[-1][1]

    def _next_arm(self, node: BracedBlock | PreprocessorBranch, text: str) -> None:
        node.arms.append((Statement(text), []))
        self._current = node.arms[-1][1]

    # ------------------------------------------------------------ names

    def known(self, e: E) -> str | None:
        """The name that e has in a scope, or None."""
        for scope in reversed(self.scopes):
            if e.id in scope:
                return scope[e.id]
        return None

    def name(self, e: E, name: str) -> None:
        """Give e a name in this scope."""
        self.scopes[-1][e.id] = name

    def name_under(self, condition: E, e: E, name: str) -> None:
        """Give e a name in this scope that holds it only where the condition does: a guard by the condition reads it,
        and nothing else, since e may be read in its other branch and under other conditions too.
        """
        self.scopes[-1][condition.id, e.id] = name

    def known_under(self, condition: E) -> dict[int | tuple[int, int], str]:
        """The names that expressions have under the condition, expression id -> name."""
        found: dict[int | tuple[int, int], str] = {}
        for scope in self.scopes:
            found |= {k[1]: n for k, n in scope.items() if isinstance(k, tuple) and k[0] == condition.id}
        return found

    def fresh(self, name: str) -> str:
        """A local name not yet taken in this kernel."""
        base = cname(name)
        candidate, count = base, 1
        while candidate in self.taken:
            count += 1
            candidate = f"{base}{count}" if not base[-1].isdigit() else f"{base}_{count}"
        self.taken.add(candidate)
        return candidate
