import { createServer } from "node:http";
import { join } from "node:path";
import { openEngine } from "@sandgate/docker-engine/client";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { SandboxRefused, StartFailed } from "../lifecycle.ts";
import { createContainerStarts } from "./container-starts.ts";

const spec = { sandboxId: "s1", workspaceId: "w1", reference: "sha256:aa", memoryMb: 64, cpus: 1, pids: 64 };

test.for([
  ['exec: "/no": stat /no: no such file or directory: unknown', SandboxRefused, "lacks its command"],
  ["fork/exec /proc/self/exe: resource temporarily unavailable", StartFailed, "could not be started."],
  [
    "unable to retrieve OCI runtime error (open /run/containerd/x/log.json: no such file or directory): fork/exec /usr/bin/runc: resource temporarily unavailable",
    StartFailed,
    "could not be started.",
  ],
  ["unable to apply cgroup configuration: device or resource busy", StartFailed, "could not be started."],
] as const)(
  "a start is final unless what the OCI runtime says may pass: %s",
  async ([said, kind, text], { folder, onTestFinished }) => {
    const server = createServer(({ url = "" }, response) => {
      response.writeHead(url.endsWith("/start") ? 500 : 200, { "content-type": "application/json" });
      const message = `OCI runtime create failed: runc create failed: ${said}`;
      response.end(JSON.stringify(url.endsWith("/start") ? { message } : { Id: "c1", Config: {} }));
    });
    const socket = join(folder, "engine.sock");
    await new Promise<void>((resolve) => server.listen(socket, resolve));
    onTestFinished(() => void server.close());
    const start = createContainerStarts({
      engine: openEngine(`docker://${socket}`),
      inspect: async () => undefined,
      isolation: {
        verifyRecent: async () => ({ tellsNeighbours: false, cgroupParent: undefined, isRootless: false }),
        verifyTotals: async () => {},
        endStaleFlows: async () => async () => {},
      },
      networks: { choose: async () => "n1", refused() {} },
      networkPerWorkspace: false,
      helperVolume: { require: async () => "helper" },
      storageLimit: { isEnforced: () => false, markMissing() {}, check: async () => {} },
      defaults: { installationId: "i1", nameservers: [], ociRuntime: undefined, diskMb: 16 },
    });
    const failure = {
      reason: "start_failed",
      message: expect.stringContaining(text),
      detail: expect.stringContaining(said),
    };
    const error = await start(spec).catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(kind);
    expect(error).toMatchObject({ failure });
  },
);
