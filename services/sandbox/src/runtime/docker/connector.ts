import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { untilAborted } from "@sandgate/kit/base/abort";
import { readHelperProgram } from "../helper-program.ts";
import { hold } from "./programs.ts";

/** Of the helper, see `helper connector`. */
const socketName = "connector";
const entered = "entered\n";
const answerMs = 5_000;
const maxAnswerLength = 1_000;

/** The container of a helper's daemon, its first process, and the user of the daemon. */
export interface DaemonPlace {
  containerId: string;
  pid: number;
  uid: number;
}

/** Opens sockets to the daemons of helpers, past the engine. */
export interface Connector {
  /**
   * @returns a socket that nothing has come by; undefined when no daemon takes it in time, and for a container that
   *   can't be entered although another was. Throws the signal's reason, and where this process can't enter containers:
   *   it must be root on the engine's machine.
   */
  connect(place: DaemonPlace, signal: AbortSignal): Promise<Socket | undefined>;
  close(): Promise<void>;
}

/**
 * A connector is a program of its own, since a thread enters the container's network. It is started by the first call
 * and ends with this process.
 */
export function createConnector(): Connector {
  let starting: Promise<Running> | undefined;
  /** Whether a container was. */
  let hasEntered = false;

  function start(): Promise<Running> {
    starting ??= startProgram(() => {
      starting = undefined;
    });
    return starting;
  }

  return {
    async connect({ containerId, pid, uid }, signal) {
      const limit = AbortSignal.any([signal, AbortSignal.timeout(answerMs)]);
      const running = await untilAborted(start(), limit, () => signal.throwIfAborted());
      if (!running) return undefined;
      const socket = connect(join(running.folder, socketName));
      // Whoever uses it learns of its end.
      socket.on("error", () => {});
      socket.write(`${pid} ${containerId} ${uid}\n`);
      const answer = await readAnswer(socket, limit).catch(() => "");
      hasEntered ||= answer.startsWith(entered);
      if (answer === `${entered}ok\n`) return socket;
      socket.destroy();
      signal.throwIfAborted();
      // A tenant may end its container at any moment.
      if (answer.startsWith("barred: ") && !hasEntered) throw new Error(answer.trim());
      return undefined;
    },
    async close() {
      const running = await starting?.catch(() => undefined);
      if (!running) return;
      const ended = once(running.child, "exit");
      hold(running.child, true);
      running.child.stdin?.end();
      await ended;
    },
  };
}

interface Running {
  child: ChildProcess;
  folder: string;
}

async function startProgram(onEnd: () => void): Promise<Running> {
  const folder = await mkdtemp(join(tmpdir(), "sandgate-"));
  try {
    const program = await readHelperProgram(process.arch);
    const file = join(folder, "helper");
    await writeFile(file, program.bytes, { mode: 0o700 });
    // It removes the folder once its input has ended, however this process ends.
    const child = spawn(file, ["connector", folder], { stdio: ["pipe", "pipe", "inherit"] });
    child.once("exit", () => {
      onEnd();
      // One that was killed leaves it.
      rm(folder, { recursive: true, force: true }).catch(() => {});
    });
    // It has no pipes where descriptors are wanting: this tells why.
    await once(child, "spawn");
    await Promise.race([
      once(child.stdout, "data"),
      once(child, "exit").then(() => Promise.reject(new Error("the connector has ended"))),
    ]);
    await rm(file, { force: true });
    hold(child, false);
    return { child, folder };
  } catch (error) {
    onEnd();
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

/** The connector's word, and the line after it once the container was entered, which may be the tenant's. */
function readAnswer(socket: Socket, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = "";
    const take = (chunk: Buffer) => {
      text += chunk.toString();
      if (text.endsWith("\n") && text !== entered) end(() => resolve(text));
      else if (text.length > maxAnswerLength) end(() => reject(new Error("the connector answered too much")));
    };
    const onClose = () => end(() => reject(new Error("the connector did not answer")));
    const onAbort = () => end(() => reject(signal.reason));
    const end = (settle: () => void) => {
      socket.off("data", take).off("close", onClose).pause();
      signal.removeEventListener("abort", onAbort);
      settle();
    };
    socket.on("data", take).on("close", onClose);
    signal.addEventListener("abort", onAbort);
  });
}
