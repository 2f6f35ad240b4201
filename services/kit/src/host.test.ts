import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:http2";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { startServiceHost } from "./host.ts";
import { createInternalKeys, createTokenVerifier } from "./internal-auth.ts";
import { createLogger } from "./logging.ts";
import { createMetrics } from "./metrics.ts";

test("health can be asked over HTTP/2 without a token", async () => {
  const { jwks } = await createInternalKeys(["facade"]);
  const host = await startServiceHost({
    service: "workspace",
    routes: () => {},
    verifier: createTokenVerifier({ audience: "workspace", jwks }),
    logger: createLogger({ service: "workspace" }),
    metrics: createMetrics(),
    host: "127.0.0.1",
    port: 0,
  });
  const session = connect(host.url);
  try {
    const request = session.request({ ":path": "/healthz" });
    const [headers] = await once(request, "response");
    expect(headers[":status"]).toBe(200);
    request.close();
  } finally {
    session.close();
    await host.close();
  }
});

const hostModule = fileURLToPath(new URL("./host.ts", import.meta.url));

test.each([
  ["stops in order at a signal", "process.stdout.write('stopped ');", ["SIGTERM"], 0, "up stopped "],
  ["says when stopping failed", "throw new Error('stuck');", ["SIGINT"], 1, "up "],
  [
    "gives up at the second signal",
    "process.stdout.write('on ');await new Promise(() => {});",
    ["SIGTERM", "SIGTERM"],
    143,
    "up on ",
  ],
] as const)("a process %s", async (_, stop, signals, code, output) => {
  const program = `
    const { stopOnSignal } = await import(${JSON.stringify(hostModule)});
    stopOnSignal(async () => { ${stop} });
    setInterval(() => {}, 1000);
    process.stdout.write("up ");`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  try {
    const exited = once(child, "exit");
    let seen = "";
    for (const signal of signals) {
      const [chunk] = await once(child.stdout, "data");
      seen += chunk;
      child.kill(signal);
    }
    child.stdout.on("data", (chunk) => {
      seen += chunk;
    });
    expect((await exited)[0]).toBe(code);
    expect(seen).toBe(output);
  } finally {
    child.kill("SIGKILL");
  }
});
