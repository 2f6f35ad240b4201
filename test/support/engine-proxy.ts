import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";

/** The engine under an address of its own, which can be taken away. */
export interface EngineProxy {
  /** From now on nothing is passed on, on open connections and on new ones, which are still taken. */
  silence(): void;
  /** Ends every connection; the address is gone. */
  close(): Promise<void>;
}

/** Passes on what comes to a new socket at this path to the engine under test: DOCKER_HOST's socket, else the one at its usual place. */
export async function openEngineProxy(socketPath: string): Promise<EngineProxy> {
  const enginePath = new URL(process.env.DOCKER_HOST || "unix:///var/run/docker.sock").pathname;
  const sockets = new Set<Socket>();
  let silent = false;
  const server = createServer((socket) => {
    sockets.add(socket.on("error", () => {}));
    if (silent) return;
    const upstream = connect(enginePath);
    sockets.add(upstream.on("error", () => {}));
    socket.pipe(upstream).pipe(socket);
  }).listen(socketPath);
  await once(server, "listening");
  return {
    silence() {
      silent = true;
      for (const socket of sockets) socket.unpipe().pause();
    },
    async close() {
      server.close();
      for (const socket of sockets) socket.destroy();
      await once(server, "close");
    },
  };
}
