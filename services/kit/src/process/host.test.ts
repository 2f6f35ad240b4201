import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:http2";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { createLogger } from "../base/logging.ts";
import { createMetrics } from "../base/metrics.ts";
import { createInternalKeys, createTokenVerifier } from "../rpc/internal-auth.ts";
import { startServiceHost } from "./host.ts";

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
    request.resume();
    await once(request, "end");
  } finally {
    session.close();
    await host.close();
  }
});

const hostModule = fileURLToPath(new URL("./host.ts", import.meta.url));

function start(stop: string) {
  const program = `
    const { stopOnSignal } = await import(${JSON.stringify(hostModule)});
    stopOnSignal(async () => { ${stop} });
    setInterval(() => {}, 1000);
    process.stdout.write("up ");`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  const output: string[] = [];
  child.stdout.on("data", (chunk) => output.push(String(chunk)));
  onTestFinished(() => {
    child.kill("SIGKILL");
  });
  return { child, output, up: once(child.stdout, "data"), exited: once(child, "exit") };
}

test.each([
  ["stops in order at a signal", "process.stdout.write('stopped ');", 0, "up stopped "],
  ["says when stopping failed", "throw new Error('stuck');", 1, "up "],
])("a process %s", async (_, stop, code, said) => {
  const { child, output, up, exited } = start(stop);
  await up;
  child.kill("SIGTERM");
  expect((await exited)[0]).toBe(code);
  expect(output.join("")).toBe(said);
});

test("a process that can't stop gives up when it is asked again", async () => {
  const { child, output, up, exited } = start("process.stdout.write('stopping ');await new Promise(() => {});");
  await up;
  const asking = setInterval(() => child.kill("SIGINT"), 100);
  onTestFinished(() => clearInterval(asking));
  expect((await exited)[0]).toBe(130);
  expect(output.join("")).toBe("up stopping ");
});
