"""The MCP server: the tools over stdio with the official SDK, one slow call at a time, with progress and cancellation.

Only the protocol reaches stdout: the SDK keeps the real one and points fd 1 at stderr meanwhile.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hipwright.api.plain import finite
from hipwright.errors import HipwrightError
from hipwright.mcp import resources
from hipwright.mcp.arguments import Reply
from hipwright.mcp.registry import TOOLS, Tool
from hipwright.mcp.texts import error_reply
from hipwright.mcp.tools import ToolContext

if TYPE_CHECKING:
    import anyio
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel.server import Server
    from mcp_types import (
        CallToolRequestParams,
        CallToolResult,
        ListResourcesResult,
        ListToolsResult,
        PaginatedRequestParams,
        ReadResourceRequestParams,
        ReadResourceResult,
    )

INSTRUCTIONS = (
    "hipwright judges HIP kernels that replace PyTorch code. list_tasks shows the tasks; best_program and exemplars "
    "show verified kernels; evaluate_program judges a program that you wrote; explain_failure says why one failed; "
    "profile_program says what holds one back; optimize and start_from search by themselves, model does so for a whole "
    "model. Change one thing at a time. An estimate is not a measurement."
)
POLL_S = 0.05
SAY_S = 2.0  # progress is reported at least this often
EXIT_S = 1.0  # for ending the machine in order; the processes of one that takes longer end with this process


class ToolJob(threading.Thread):
    """One slow call in its own thread, which does not delay the exit of the process."""

    def __init__(self, call: Callable[[Callable[[str, dict[str, Any]], None]], Reply]) -> None:
        super().__init__(name="hipwright-mcp-job", daemon=True)
        self._call = call
        self.stage = "starting"
        self.done = threading.Event()
        self.reply: Reply | None = None
        self.problem: Exception | None = None

    def run(self) -> None:
        """Runs the call, in the thread."""
        try:
            self.reply = self._call(self._listen)
        except Exception as error:
            self.problem = error
        finally:
            self.done.set()

    def outcome(self) -> Reply:
        """The result of the call; raises its error."""
        if self.problem is not None:
            raise self.problem
        assert self.reply is not None
        return self.reply

    def _listen(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "stage":
            self.stage = str(data.get("text", ""))


@dataclass
class Service:
    """The handlers of one server."""

    context: ToolContext
    turn: anyio.Lock
    job: ToolJob | None = None
    aborting: threading.Thread | None = None

    async def list_tools(
        self, ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        """The tools with their schemas."""
        from mcp_types import ListToolsResult, ToolAnnotations
        from mcp_types import Tool as Listed

        keeps = self.context.journal is not None
        reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        writes = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
        listed = [
            Listed(
                name=name,
                description=tool.about,
                input_schema=tool.schema(),
                annotations=writes if keeps and tool.slow else reads,
            )
            for name, tool in TOOLS.items()
        ]
        return ListToolsResult(tools=listed)

    async def call_tool(self, ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        """One call; any error becomes a tool error with one line and a hint."""
        from mcp_types import CallToolResult, TextContent

        try:
            reply = await self._reply(ctx, params.name, params.arguments)
        except Exception as error:
            text, data = self._failure(error)
            return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=data, is_error=True)
        return CallToolResult(content=[TextContent(type="text", text=reply.text)], structured_content=reply.data)

    async def list_resources(
        self, ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        """The reports of the archive's runs."""
        import anyio
        from mcp_types import ListResourcesResult, Resource

        found = await anyio.to_thread.run_sync(resources.listed, self.context.home)
        return ListResourcesResult(
            resources=[
                Resource(name=uri.removeprefix(resources.PREFIX), uri=uri, description=about, mime_type="text/html")
                for uri, about in found
            ]
        )

    async def read_resource(
        self, ctx: ServerRequestContext[Any], params: ReadResourceRequestParams
    ) -> ReadResourceResult:
        """One report. What it says is data, as everything from an archive is."""
        import anyio
        from mcp_types import ReadResourceResult, TextResourceContents

        uri = str(params.uri)
        text = await anyio.to_thread.run_sync(resources.report, self.context.home, uri)
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type="text/html", text=text)])

    async def _reply(self, ctx: ServerRequestContext[Any], name: str, given: dict[str, Any] | None) -> Reply:
        import anyio

        from hipwright.errors import BadInput

        tool = TOOLS.get(name)
        if tool is None:
            raise BadInput(f"no tool {name!r}", hint=f"tools: {', '.join(TOOLS)}")
        arguments = tool.read(given)
        if tool.slow:
            return await self._slow(ctx, tool, arguments)
        return await anyio.to_thread.run_sync(tool.run, self.context, arguments, _ignore)

    async def _slow(self, ctx: ServerRequestContext[Any], tool: Tool, arguments: Any) -> Reply:
        """Waits for this call's turn, runs it in its thread and reports progress; cancellation ends the machine."""
        import anyio

        start = time.monotonic()
        if self.turn.locked():
            await ctx.session.report_progress(0.0, None, "waiting for the evaluation before this one")
        async with self.turn:
            while self._leaving():
                await anyio.sleep(POLL_S)
            self.context.begin()
            self.job = job = ToolJob(lambda listener: tool.run(self.context, arguments, listener))
            job.start()
            try:
                await _watch(ctx, job, start)
            except anyio.get_cancelled_exc_class():
                self.aborting = threading.Thread(target=self.context.abort, daemon=True)
                self.aborting.start()
                raise
        return job.outcome()

    def _leaving(self) -> bool:
        """Whether a cancelled call still runs, which would end the next one's machine."""
        running = self.job is not None and not self.job.done.is_set()
        return running or (self.aborting is not None and self.aborting.is_alive())

    def _failure(self, error: Exception) -> tuple[str, dict[str, Any]]:
        """An error as text (one line and a hint) and as the object that `--json` prints."""
        if not isinstance(error, HipwrightError):
            logging.getLogger("hipwright.mcp").debug("internal error", exc_info=error)
            error = HipwrightError(
                f"internal error: {type(error).__name__}: {error}",
                hint="this is a bug in hipwright: report it with the call that led to it",
            )
        reply = error_reply(error)
        text = f"error: {reply['whose']}: {reply['error']}"
        return text + (f"\nhint: {reply['hint']}" if reply["hint"] else ""), finite(reply)

    def end(self) -> bool:
        """Ends the machine; False when it does not end in time, and this process should end."""
        busy = self.job is not None and not self.job.done.is_set()

        def close() -> None:
            self.context.abort()
            if not busy:
                if self.context.journal is not None:
                    self.context.journal.close()
                self.context.machine.close()

        closing = threading.Thread(target=close, daemon=True)
        closing.start()
        closing.join(EXIT_S)
        return not (busy or closing.is_alive())


def serve(context: ToolContext) -> int:
    """Serves until stdin ends or a signal comes; returns the exit code. Leaves no process behind."""
    import anyio

    return anyio.run(_serve, context)


async def _serve(context: ToolContext) -> int:
    import anyio
    from mcp.server.lowlevel.server import Server
    from mcp.server.stdio import stdio_server

    import hipwright

    service = Service(context, anyio.Lock())
    server: Server[Any] = Server(
        "hipwright",
        version=hipwright.__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=service.list_tools,
        on_call_tool=service.call_tool,
        on_list_resources=service.list_resources,
        on_read_resource=service.read_resource,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_signal, service)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()
    if not await anyio.to_thread.run_sync(service.end):
        _leave(0)
    return 0


async def _until_signal(service: Service) -> None:
    """On SIGINT or SIGTERM: ends the machine and this process, whether or not stdin is being read."""
    import signal

    import anyio

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            service.end()
            _leave(128 + number)


def _leave(code: int) -> None:
    """Ends the process at once: a thread that waits for a process or for stdin would delay the usual exit."""
    sys.stderr.flush()
    os._exit(code)


async def _watch(ctx: ServerRequestContext[Any], job: ToolJob, start: float) -> None:
    """Reports the stage when it changes, and at least every SAY_S that work continues; progress is in seconds since the
    call.
    """
    import anyio

    stage, last = "", float("-inf")
    while not job.done.is_set():
        now = time.monotonic()
        if job.stage != stage or now - last >= SAY_S:
            stage, last = job.stage, now
            await ctx.session.report_progress(round(now - start, 3), None, stage)
        await anyio.sleep(POLL_S)


def _ignore(kind: str, data: dict[str, Any]) -> None:
    """The listener of fast tools, which report nothing."""
