"""The task generator role: new tasks in the KernelBench form, each accepted by the self-check.

The engine mutates the syntax tree of a given task (synth/mutate.py). A language model is asked for a mutation of a
given task, a composition of operators, or a task under a constraint in words; after a refusal by the self-check
(synth/check.py) it gets the message, up to `TRIES` times. Dropped tasks are reported with the reason.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from hipwright.agents.base import Asker, Author, Chooser, fence, render
from hipwright.llm.records import Message, Request
from hipwright.records import Record, Task, content_key
from hipwright.sandbox import Zygote
from hipwright.synth.check import MAX_ELEMENTS, MAX_TEXT, Description, TaskRefused, check, task_text_key
from hipwright.synth.mutate import TaskMutation, mutations

T = TypeVar("T")

TRIES = 5
ANSWER_TOKENS = 4096

OPERATORS = (
    "a matrix product",
    "a batched matrix product",
    "a 2-d convolution",
    "a depthwise convolution",
    "a pooling",
    "an embedding lookup",
    "a layer norm",
    "a batch norm in eval mode",
    "a softmax",
    "a cumulative sum",
    "a gather",
    "a top-k selection",
    "a gated activation",
    "a broadcasted bias",
    "a residual",
    "a loss averaged over all elements",
    "a transpose",
    "a masked fill",
)
"""The operators that a composition is drawn from."""

CONSTRAINTS = (
    "a reduction over a dimension that is not contiguous in memory, then a pointwise tail.",
    "half-width inputs with sums that must be kept in float32.",
    "two outputs of different shapes that share most of their work.",
    "sizes that are no multiples of 16, and a tail that a careless kernel would get wrong.",
    "an integer input that indexes a parameter.",
    "a recurrence along a sequence that cannot be split naively.",
    "attention with a mask, on small sizes.",
)

TaskIdea = Literal["mutation", "composition", "constraint"]
TASK_IDEAS: tuple[TaskIdea, ...] = ("mutation", "composition", "constraint")


class NewTask(Record, frozen=True, kw_only=True):
    """An accepted task. how: the mutation or the idea in words; parent: the task it came from, "" for none."""

    task: Task
    author: Author
    how: str
    parent: str
    described: Description
    tries: int = 1


class DroppedTask(Record, frozen=True, kw_only=True):
    """A refused task. stage: of synth.check.Stage."""

    author: Author
    how: str
    parent: str
    stage: str
    message: str


class TaskBatch(Record, frozen=True, kw_only=True):
    """The tasks of one call. dropped: every refusal, also those that a later try corrected."""

    accepted: tuple[NewTask, ...] = ()
    dropped: tuple[DroppedTask, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Refusals by stage."""
        return dict(Counter(one.stage for one in self.dropped))


@dataclass
class TaskGenerator:
    """The role. zygote: of sandboxed processes with torch; client, lineup: needed for tasks by a model only."""

    zygote: Zygote
    seed: int = 0
    client: Asker | None = None
    lineup: Chooser | None = None
    name: str = "task_generator"
    _known: set[str] = field(default_factory=set)

    def mutated(self, parents: Mapping[str, str], count: int) -> TaskBatch:
        """Makes up to `count` tasks by the engine, alternating parents ({name: source}) and kinds of change."""
        rng = random.Random(content_key("task generator", str(self.seed), *parents))
        self._known.update(map(task_text_key, parents.values()))
        queue = _in_turn({name: mutations(source, rng) for name, source in parents.items()}, rng)
        accepted: list[NewTask] = []
        dropped: list[DroppedTask] = []
        for parent, change in queue:
            if len(accepted) >= count:
                break
            how = f"{change.kind}: {change.detail}"
            try:
                task, described = self._checked(f"{parent}_{change.kind}_{len(accepted)}", change.source)
            except TaskRefused as refused:
                dropped.append(_dropped("engine", how, parent, refused))
                continue
            accepted.append(NewTask(task=task, author="engine", how=how, parent=parent, described=described))
        return TaskBatch(accepted=tuple(accepted), dropped=tuple(dropped))

    def asked(self, parents: Mapping[str, str], count: int) -> TaskBatch:
        """Asks models for up to `count` tasks, alternating the three kinds of ideas.

        Raises OutOfBudget and ProviderError; a repeated call does not repeat answered requests.
        """
        self._known.update(map(task_text_key, parents.values()))
        accepted: list[NewTask] = []
        dropped: list[DroppedTask] = []
        for number in range(count):
            made, refusals = self._ask(parents, number)
            accepted += [made] if made is not None else []
            dropped += refusals
        return TaskBatch(accepted=tuple(accepted), dropped=tuple(dropped))

    def _ask(self, parents: Mapping[str, str], number: int) -> tuple[NewTask | None, list[DroppedTask]]:
        rng = self._rng(number)
        return self._tried(number, rng, *_idea_prompt(TASK_IDEAS[number % len(TASK_IDEAS)], parents, rng))

    def one(
        self, kind: TaskIdea, number: int, parents: Mapping[str, str], constraint: str = ""
    ) -> tuple[NewTask | None, list[DroppedTask]]:
        """Asks a model for one task; also returns the refusals on the way. constraint: "" draws one.

        The result depends on the arguments and the seed alone, not on earlier calls. Raises OutOfBudget and
        ProviderError; a repeated call does not repeat answered requests.
        """
        self._known = set(map(task_text_key, parents.values()))
        rng = self._rng(number)
        return self._tried(number, rng, *_idea_prompt(kind, parents, rng, constraint))

    def _rng(self, number: int) -> random.Random:
        return random.Random(content_key("task wish", str(self.seed), str(number)))

    def _tried(
        self, number: int, rng: random.Random, how: str, parent: str, prompt: str
    ) -> tuple[NewTask | None, list[DroppedTask]]:
        messages = [Message(role="user", text=prompt)]
        assert self.client is not None and self.lineup is not None, "tasks by a model need a client and a lineup"
        model = self.lineup.choose(self.name, rng)
        dropped: list[DroppedTask] = []
        for attempt in range(TRIES):
            request = Request(
                role=self.name,
                number=number,
                index=attempt,
                model=model,
                messages=tuple(messages),
                max_tokens=ANSWER_TOKENS,
            )
            text = self.client.ask(request).text
            try:
                task, described = self._checked(f"llm_{number}", code_of(text))
            except TaskRefused as refused:
                dropped.append(_dropped("llm", how, parent, refused))
                why = f"The task was refused ({refused.stage}): {refused.message}\nAnswer with the whole mended file."
                messages += [Message(role="assistant", text=text), Message(role="user", text=why)]
                continue
            made = NewTask(task=task, author="llm", how=how, parent=parent, described=described, tries=attempt + 1)
            return made, dropped
        return None, dropped

    def _checked(self, name: str, source: str) -> tuple[Task, Description]:
        task, described = check(name, source, self.zygote, seed=self.seed)
        key = task_text_key(source)
        if key in self._known:
            raise TaskRefused("duplicate", "it is the same as a task that is known")
        self._known.add(key)
        return task, described


def code_of(text: str) -> str:
    """The Python of an answer: its longest fenced block, or the whole text without one. Executes nothing."""
    blocks = re.findall(r"^(`{3,})(?:python|py)?[ \t]*\n(.*?)^\1[ \t]*$", text, re.DOTALL | re.MULTILINE)
    return max((body for _, body in blocks), key=len, default=text)


def _idea_prompt(
    kind: TaskIdea, parents: Mapping[str, str], rng: random.Random, constraint: str = ""
) -> tuple[str, str, str]:
    """Returns (the idea in words, the parent, the prompt). Without parents a mutation becomes a composition."""
    sizes = {"max_elements": MAX_ELEMENTS, "max_text": MAX_TEXT}
    if kind == "mutation" and parents:
        name = rng.choice(sorted(parents))
        shown = fence(parents[name], "python")
        return f"mutation of {name}", name, render("task_generator", kind=kind, parent=shown, **sizes)
    if kind == "constraint":
        one = constraint or rng.choice(CONSTRAINTS)
        return f"constraint: {one}", "", render("task_generator", kind=kind, constraint=one, **sizes)
    operators = ", ".join(rng.sample(OPERATORS, rng.randint(2, 4)))
    prompt = render("task_generator", kind="composition", operators=operators, **sizes)
    return f"composition of {operators}", "", prompt


def _dropped(author: Author, how: str, parent: str, refused: TaskRefused) -> DroppedTask:
    return DroppedTask(author=author, how=how, parent=parent, stage=refused.stage, message=refused.message[:500])


def _in_turn(found: Mapping[str, Sequence[TaskMutation]], rng: random.Random) -> list[tuple[str, TaskMutation]]:
    """Orders all mutations with their parent: parents alternate, and within each the kinds of change."""
    queues = {}
    for parent, changes in found.items():
        kinds: dict[str, list[TaskMutation]] = {}
        for change in changes:
            kinds.setdefault(change.kind, []).append(change)
        queues[parent] = _round_robin([rng.sample(one, len(one)) for one in kinds.values()], rng)
    return _round_robin([[(parent, change) for change in queue] for parent, queue in queues.items()], rng)


def _round_robin(lists: Sequence[list[T]], rng: random.Random) -> list[T]:
    order: list[T] = []
    left = rng.sample(list(lists), len(lists))
    while left := [one for one in left if one]:
        order += [one.pop() for one in left]
    return order
