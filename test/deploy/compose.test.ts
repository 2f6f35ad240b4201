import { execFile } from "node:child_process";
import { cpSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { buildImage, engineSocket, openTestEngine, probeEngine, type TestImage } from "@sandgate/test-support/images";
import { findFreePort } from "@sandgate/test-support/process";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createClient, expectStatus } from "../conformance/client.ts";
import { readText, root } from "./deployment.ts";

const execute = promisify(execFile);

const { BASE_IMAGE, MONGODB_IMAGE, NATS_IMAGE } = process.env;
const composeFile = readText("deploy/compose/compose.yaml");
const images = [
  BASE_IMAGE ?? /^ARG BASE_IMAGE=(.+)$/m.exec(readText("deploy/Dockerfile"))?.[1],
  MONGODB_IMAGE ?? /\$\{MONGODB_IMAGE:-(.+)\}/.exec(composeFile)?.[1],
  NATS_IMAGE ?? /\$\{NATS_IMAGE:-(.+)\}/.exec(composeFile)?.[1],
];

/** Images of a gigabyte in all are used where they are, and not fetched for a test. */
async function probeCompose(): Promise<void> {
  await probeEngine();
  await execute("docker", ["compose", "version"]);
  for (const image of images) {
    await execute("docker", ["image", "inspect", String(image)]).catch((cause) => {
      throw new Error(`the engine has no ${image} (docker pull ${image})`, { cause });
    });
  }
}

describe.runIf(await requireServer("compose", probeCompose))("the composed platform", { timeout: 300_000 }, () => {
  const project = `sandgate-test-${process.pid}`;
  const image = `${project}:built`;
  let removeFolder: () => Promise<void>;
  let folder: string;
  let env: NodeJS.ProcessEnv;
  let url: string;
  let page: TestImage;

  const run = (command: string, ...args: string[]) =>
    execute(command, args, { cwd: join(folder, "compose"), env, maxBuffer: 64 * 1024 * 1024 });
  const compose = (...args: string[]) => run("docker", "compose", "--project-name", project, ...args);

  beforeAll(async () => {
    ({ path: folder, remove: removeFolder } = await createTempFolder());
    // Its secrets lie beside the compose file.
    for (const part of ["compose", "nats", "secrets.sh"]) {
      cpSync(join(root, "deploy", part), join(folder, part), {
        recursive: true,
        filter: (source) => !/\/(secrets|\.env|compose\.override\.yaml)$/.test(source),
      });
    }
    page = await buildImage(openTestEngine(), {
      command: ["/bin/sh", "-c", "echo serving; httpd -f -p 8080 -h /www"],
      files: { "/www/index.html": "ready" },
    });
    const port = await findFreePort();
    url = `http://127.0.0.1:${port}`;
    env = {
      ...process.env,
      IMAGE: image,
      PUBLISH: `127.0.0.1:${port}`,
      PUBLIC_URL: url,
      PLATFORM_NET: "172.30.86",
      PULL_PORT: "0",
      DATA_NET: "172.30.87",
      DOCKER_GROUP: String(statSync(engineSocket).gid),
      DEFAULT_IMAGE: `default=${page.reference},8080`,
    };
    const base = BASE_IMAGE ? ["--build-arg", `BASE_IMAGE=${BASE_IMAGE}`] : [];
    await run("docker", "build", "--quiet", "--tag", image, ...base, "--file", join(root, "deploy/Dockerfile"), root);
    await run("sh", join(folder, "secrets.sh"), "make", "secrets");
    await compose("up", "--detach", "--wait");
  }, 600_000);

  afterAll(async () => {
    await compose("down", "--volumes");
    await page?.remove();
    await run("docker", "image", "rm", image);
    await removeFolder();
  });

  test("signs in, provisions, waits, shows logs, and has all of it after it was taken down and up", async () => {
    const client = createClient(url);
    const password = readFileSync(join(folder, "compose/secrets/identity/admin-password"), "utf8");
    const signIn = async () => {
      const body = { username: "admin@localhost", password, recaptchaToken: "" };
      const { tokens } = expectStatus(await client.post("/auth/login", body), 200);
      const token: string = tokens.access_token;
      const { workspaces } = expectStatus(await client.get("/workspaces", { token }), 200);
      return { token, workspace: workspaces[0].id };
    };
    let operator = await signIn();
    const provision = async () => {
      const { images } = expectStatus(await client.get("/sandbox-images", operator), 200);
      const body = { image_id: images[0].id };
      const { id } = expectStatus(await client.post("/sandboxes/provision", body, operator), 201);
      expectStatus(await client.post("/sandboxes/wait", { sandbox_id: id, timeout_seconds: 240 }, operator), 200);
      return id;
    };
    const id = await provision();
    const showsLogs = () =>
      until(async () => {
        const { logs } = expectStatus(await client.get(`/sandbox/monitoring/${id}`, operator), 200);
        expect(logs).toMatchObject([{ stream: "stdout", log: "serving" }]);
      });
    await showsLogs();

    await compose("down");
    await compose("up", "--detach", "--wait");
    operator = await signIn();
    expect(expectStatus(await client.get(`/sandboxes/${id}`, operator), 200).state).toBe("ready");
    await showsLogs();
    const another = await provision();
    for (const each of [id, another]) {
      expectStatus(await client.delete(`/sandboxes/${each}`, operator), 204);
    }
  });
});
