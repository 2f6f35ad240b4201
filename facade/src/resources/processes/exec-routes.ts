import type { Violation } from "@sandgate/kit/base/domain-error";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { OutputStream, type Process } from "@sandgate/proto/helper/v1/process";
import { ProcessService, type RunCommandResponse } from "@sandgate/proto/sandbox/v1/processes";
import type { FastifyReply, FastifyRequest } from "fastify";
import { callFor, signedInOf } from "../../pipeline/base/request-context.ts";
import { inSandbox } from "../../pipeline/errors/in-sandbox.ts";
import { createAnswerBudget } from "../../pipeline/limits/answer-budget.ts";
import { JoinedBytes } from "../../pipeline/limits/joined-bytes.ts";
import type { LiveRequest } from "../../pipeline/live/live-requests.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { sandboxIdOf } from "../sandboxes/mapping.ts";
import { SandboxParams } from "../sandboxes/schemas.ts";
import { eventStream, eventsDescription, sendProcessEvents, toServerEvents, wantsEvents } from "./events.ts";
import { checkCommand, fromCommand, toBodyError, toProcess } from "./mapping.ts";
import { outputBrokeOff } from "./output.ts";
import { type Encoding, ExecBody, ExecHeaders, ExecResult } from "./schemas.ts";

const { method: rpc } = ProcessService;
const defaultTimeoutSeconds = 60;
const maxTimeoutSeconds = 240;
const defaultOutputBytes = mebibyte;
/** How much longer than the command's own time the call may take: to reach the sandbox, and to end the command. */
const callGraceMs = 30_000;

export const execRoutes: RoutePlugin = async (app, { clients, live, logger }) => {
  const { processes } = clients;
  const budget = createAnswerBudget({
    // Of the most output, which as base64 takes a third more. Where much of it is escaped, the answer is refused.
    ofUser: 64 * mebibyte,
    inProcess: 192 * mebibyte,
    messages: {
      ofUser: "Too much output of your commands is waiting to be sent.",
      inProcess: "Too much output of commands is waiting to be sent.",
      hint: "Take the output as a stream, with Accept: text/event-stream, or lower max_output_bytes.",
    },
  });

  app.post(
    "/sandboxes/:sandbox_id/exec",
    {
      config: {
        rules: {
          rpc: rpc.runCommand,
          audit: "sandbox.exec",
          errors: inSandbox,
          check: checkExec,
        },
      },
      schema: {
        tags: ["Commands"],
        summary: "Run a command",
        description: `Answers when the command has ended. Output that waits to be sent may take 64 MiB for each user and 192 MiB in all, counted as JSON; above that the answer is \`rate_limited\`. With \`Accept: text/event-stream\` it is followed live. ${eventsDescription}`,
        headers: ExecHeaders,
        params: SandboxParams,
        body: ExecBody,
        response: {
          200: {
            description: "How it ended, and its output; or the stream.",
            content: { "application/json": { schema: ExecResult }, "text/event-stream": eventStream },
          },
        },
      },
    },
    (request, reply) => {
      const { body } = request;
      const { timeout_seconds: timeoutSeconds = defaultTimeoutSeconds, encoding = "utf8" } = body;
      const asEvents = wantsEvents(request.headers);
      const run = ({ signal }: LiveRequest) =>
        processes.runCommand(
          {
            sandbox: sandboxIdOf(request.params.sandbox_id),
            command: { ...fromCommand(body), timeoutSeconds },
            continueOnDisconnect: body.on_disconnect === "continue",
            maxOutputBytes: body.max_output_bytes ?? (asEvents ? 0 : defaultOutputBytes),
          },
          callFor(request, { signal, timeoutMs: asEvents ? 0 : timeoutSeconds * 1000 + callGraceMs }),
        );
      const collect = async (opened: LiveRequest) => {
        // Before the command runs, so that one that is refused here has done nothing.
        const take = budget.open(signedInOf(request).user.id, reply.raw);
        const result = await collectResult(run(opened), (data) => take(jsonBytesOf(data, encoding)));
        return reply.send({
          ...toProcess(result.process),
          stdout: result.stdout.toString(encoding),
          stderr: result.stderr.toString(encoding),
          stdout_truncated: result.stdoutTruncated,
          stderr_truncated: result.stderrTruncated,
          encoding,
        });
      };
      const follow = (opened: LiveRequest) => {
        const events = toServerEvents(run(opened), encoding === "utf8" ? "text" : "base64");
        return sendProcessEvents({ request, reply, logger }, opened, events);
      };
      return live.run(request, reply, asEvents ? follow : collect).catch((error: unknown): FastifyReply => {
        throw toBodyError(error);
      });
    },
  );
};

interface Result {
  process: Process;
  stdout: Buffer;
  stderr: Buffer;
  stdoutTruncated: boolean;
  stderrTruncated: boolean;
}

/** Reads to the end, since leaving a call costs more than its own end. */
async function collectResult(
  events: AsyncIterable<RunCommandResponse>,
  take: (data: Uint8Array) => void,
): Promise<Result> {
  const stdout = new JoinedBytes();
  const stderr = new JoinedBytes();
  let ended: Pick<Result, "process" | "stdoutTruncated" | "stderrTruncated"> | undefined;
  for await (const { event: at, stdoutTruncated, stderrTruncated } of events) {
    const event = at?.event;
    if (event?.case === "output") {
      const { stream, data } = event.value;
      take(data);
      (stream === OutputStream.STDERR ? stderr : stdout).add(data);
    }
    if (event?.case === "exit") ended = { process: event.value, stdoutTruncated, stderrTruncated };
  }
  if (!ended) throw outputBrokeOff();
  return { ...ended, stdout: stdout.take(), stderr: stderr.take() };
}

/** What output takes in the answer. Each half of a character that comes in two parts counts as a character. */
function jsonBytesOf(data: Uint8Array, encoding: Encoding): number {
  return Buffer.byteLength(JSON.stringify(Buffer.from(data).toString(encoding))) - '""'.length;
}

function checkExec({ body, headers }: FastifyRequest): Violation[] {
  const violations = checkCommand(body);
  const seconds: unknown =
    typeof body === "object" && body !== null && "timeout_seconds" in body && body.timeout_seconds;
  if (typeof seconds === "number" && seconds > maxTimeoutSeconds && !wantsEvents(headers)) {
    const issue = `must be ${maxTimeoutSeconds} or less, unless events are asked for with Accept: text/event-stream`;
    violations.push({ field: "body.timeout_seconds", issue });
  }
  return violations;
}
