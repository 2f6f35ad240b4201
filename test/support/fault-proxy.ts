import { once } from "node:events";
import { connect, createServer, type NetConnectOpts, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";

/**
 * `slow`: each chunk is delayed. `silent`: connections are accepted and kept, and what is sent waits until the mode
 * changes, as on a network that drops every packet. `down`: connections are closed and refused. `reset`: each is reset,
 * old and new.
 */
export type FaultMode = "open" | "slow" | "silent" | "down" | "reset";

/** Stands between a client and a server, as the network that a test breaks. */
export interface FaultProxy {
  set(mode: FaultMode): Promise<void>;
  /** How many it has accepted, also those that it reset. */
  connections(): number;
  /** Ends every connection; the address is gone. */
  close(): Promise<void>;
}

/** Forwards from one address to another. `slow` adds `slowMs` in each direction, 200 unless set. */
export async function openFaultProxy(o: {
  listen: { host: string; port: number } | { path: string };
  to: NetConnectOpts;
  slowMs?: number;
}): Promise<FaultProxy> {
  const sockets = new Set<Socket>();
  let mode: FaultMode = "open";
  let passes = Promise.withResolvers<void>();
  passes.resolve();

  /** One direction. Chunks keep their order, whatever the mode is when they arrive. */
  function pass(from: Socket, to: Socket): void {
    from.on("error", () => {});
    let last = Promise.resolve();
    const soon = (send: () => void) => {
      const dueAt = performance.now() + (mode === "slow" ? (o.slowMs ?? 200) : 0);
      last = last.then(async () => {
        await passes.promise;
        const leftMs = dueAt - performance.now();
        if (leftMs > 0) await delay(leftMs);
        if (!to.destroyed) send();
      });
    };
    from.on("data", (chunk) => soon(() => to.write(chunk)));
    from.on("end", () => soon(() => to.end()));
    from.on("close", () => soon(() => to.destroySoon()));
  }

  let accepted = 0;
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    accepted++;
    if (mode === "reset") return void socket.on("error", () => {}).resetAndDestroy();
    sockets.add(socket.on("close", () => sockets.delete(socket)));
    const upstream = connect({ ...o.to, allowHalfOpen: true });
    pass(socket, upstream);
    pass(upstream, socket);
  });
  const open = () => once(server.listen(o.listen), "listening");
  const shut = async () => {
    if (!server.listening) return;
    server.close();
    for (const socket of sockets) socket.destroy();
    await once(server, "close");
  };
  await open();

  return {
    async set(next) {
      mode = next;
      passes.resolve();
      if (mode === "silent") passes = Promise.withResolvers();
      if (mode === "reset") for (const socket of sockets) socket.resetAndDestroy();
      if (mode === "down") await shut();
      else if (!server.listening) await open();
    },
    connections: () => accepted,
    async close() {
      passes.resolve();
      await shut();
    },
  };
}
