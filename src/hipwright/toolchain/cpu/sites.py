"""Sites where lanes wait: each wave operation gets its position in the structured order of its function.

On the GPU a diverged wave runs the earliest part of the program first and reconverges behind the branch or the loop.
The runtime does the same with the positions computed here: blocks in reverse post-order, where a natural loop is one
position of the code around it; inside a loop the earlier iteration comes first, by a counter at the loop's header.
Dominators after Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hipwright.toolchain.cpu.ir import IrFunction, SourceLines

LOOPS, DEPTH = 32, 6  # as in cpu_rt/rt.h
_SITE = re.compile(r"(@hw_w_(?!store\b)\w+\(i32 noundef )0\b")
_LABEL = re.compile(r'^([-\w.$]+|"[^"]*"):')
_TARGET = re.compile(r'label %([-\w.$]+|"[^"]*")')


@dataclass
class Site:
    """One site. nest: (position, loop number) of the loops around it, outermost first."""

    line: int
    position: int
    nest: list[tuple[int, int]]


@dataclass
class _Loop:
    header: int
    blocks: set[int]
    parent: _Loop | None = None
    number: int = -1
    last: int = -1
    children: list[_Loop] = field(default_factory=list)


@dataclass
class Sites:
    """All sites of a module; number 0 stands for "unknown"."""

    lines: SourceLines
    found: list[Site] = field(default_factory=lambda: [Site(0, 0, [])])
    loops: int = 0  # loop counters that a thread needs

    def number(self, function: IrFunction, index: int) -> None:
        """Number the sites in the lines of the index-th function, and insert the counters of their loops."""
        rows = [i for i, line in enumerate(function.lines) if "@hw_w_" in line and _SITE.search(line)]
        if not rows:
            return
        graph = _Graph(function.lines)
        loops = graph.loops({graph.block_of[row] for row in rows if row in graph.block_of})
        self.loops = max([self.loops, *(loop.number + 1 for loop in loops)])
        for row in rows:
            block = graph.block_of.get(row)
            site = Site(self.lines.of(function.lines[row]), index << 26, [])
            if block is not None:
                nest = graph.nest(loops, block)
                site.nest = [(index << 26 | graph.order[loop.header] << 10, loop.number) for loop in nest]
                site.position = index << 26 | graph.order[block] << 10 | min(row - graph.starts[block] + 1, 1023)
            function.lines[row] = _SITE.sub(rf"\g<1>{len(self.found)}", function.lines[row], count=1)
            self.found.append(site)
        for row, loop in sorted(((graph.after_phis(loop.header), loop) for loop in loops), key=lambda x: -x[0]):
            function.lines.insert(row, f"  call void @hw_loop(i32 {loop.number}, i32 {loop.last})")

    def table(self) -> str:
        """The IR of the constant table that the runtime reads."""
        rows = []
        for site in self.found:
            nest = [*site.nest, *[(0, 0)] * (DEPTH - len(site.nest))]
            inner = ", ".join(f"{{ i32, i32 }} {{ i32 {p}, i32 {n} }}" for p, n in nest)
            rows.append(
                f"{{ i32, i32, i32, i32, [{DEPTH} x {{ i32, i32 }}] }} {{ i32 {site.line}, i32 {len(site.nest)}, "
                f"i32 {site.position}, i32 0, [{DEPTH} x {{ i32, i32 }}] [{inner}] }}"
            )
        kind = f"[{len(rows)} x {{ i32, i32, i32, i32, [{DEPTH} x {{ i32, i32 }}] }}]"
        return f"@hw_sites = hidden constant {kind} [{', '.join(rows)}], align 8"


class _Graph:
    """The control flow graph of one function; blocks are numbered in the order of the text."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.starts: list[int] = []
        self.block_of: dict[int, int] = {}
        self.successors: list[list[int]] = []
        self._read()
        self.order = self._reverse_post_order()
        self.idom = self._dominators()

    def _read(self) -> None:
        names: dict[str, int] = {}
        targets: list[list[str]] = []
        for i, line in enumerate(self.lines[1:-1], 1):
            label = _LABEL.match(line)
            if label or not self.starts:
                if label:
                    names[label.group(1)] = len(self.starts)
                self.starts.append(i)
                targets.append([])
            self.block_of[i] = len(self.starts) - 1
            if "label %" in line:
                targets[-1] += _TARGET.findall(line)
        self.successors = [[names[t] for t in block if t in names] for block in targets]

    def _reverse_post_order(self) -> dict[int, int]:
        seen, post = {0}, []
        stack = [(0, iter(self.successors[0]))]
        while stack:
            block, rest = stack[-1]
            following = next((s for s in rest if s not in seen), None)
            if following is None:
                post.append(block)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(self.successors[following])))
        order = {block: i for i, block in enumerate(reversed(post))}
        for block in range(len(self.starts)):  # unreachable blocks come last
            order.setdefault(block, len(order))
        return order

    def _dominators(self) -> dict[int, int]:
        self.predecessors: list[list[int]] = [[] for _ in self.starts]
        for block, following in enumerate(self.successors):
            for s in following:
                self.predecessors[s].append(block)
        idom = {0: 0}
        changed = True
        while changed:
            changed = False
            for block in sorted(self.order, key=self.order.__getitem__):
                known = [p for p in self.predecessors[block] if p in idom]
                if block == 0 or not known:
                    continue
                best = known[0]
                for other in known[1:]:
                    best = self._common_dominator(idom, best, other)
                if idom.get(block) != best:
                    idom[block], changed = best, True
        return idom

    def _common_dominator(self, idom: dict[int, int], a: int, b: int) -> int:
        while a != b:
            while self.order[a] > self.order[b]:
                a = idom[a]
            while self.order[b] > self.order[a]:
                b = idom[b]
        return a

    def _dominates(self, a: int, b: int) -> bool:
        while self.order[b] > self.order[a] and b in self.idom:
            b = self.idom[b]
        return a == b

    def loops(self, wanted: set[int]) -> list[_Loop]:
        """The natural loops that contain one of the wanted blocks, numbered outside in; at most LOOPS of them."""
        bodies: dict[int, set[int]] = {}
        for block, following in enumerate(self.successors):
            for header in following:
                if block in self.idom and self._dominates(header, block):
                    bodies.setdefault(header, {header}).update(self._body(header, block))
        loops = [_Loop(header, blocks) for header, blocks in bodies.items() if blocks & wanted]
        loops.sort(key=lambda loop: (-len(loop.blocks), self.order[loop.header]))
        loops = loops[:LOOPS]
        for i, loop in enumerate(loops):
            around = [outer for outer in loops[:i] if loop.blocks < outer.blocks]
            if around:
                loop.parent = around[-1]
                around[-1].children.append(loop)
        self._number([loop for loop in loops if loop.parent is None], 0)
        return loops

    def _body(self, header: int, latch: int) -> set[int]:
        body, stack = {header}, [latch]
        while stack:
            block = stack.pop()
            if block not in body:
                body.add(block)
                stack += self.predecessors[block]
        return body

    def _number(self, loops: list[_Loop], start: int) -> int:
        for loop in loops:
            loop.number = start
            start = self._number(loop.children, start + 1)
            loop.last = start - 1
        return start

    def nest(self, loops: list[_Loop], block: int) -> list[_Loop]:
        """The loops around a block, outermost first."""
        around = sorted((loop for loop in loops if block in loop.blocks), key=lambda loop: loop.number)
        return around[:DEPTH]

    def after_phis(self, block: int) -> int:
        """The row of the block's first instruction that is no phi."""
        row = self.starts[block]
        while _LABEL.match(self.lines[row]) or " = phi " in self.lines[row]:
            row += 1
        return row
