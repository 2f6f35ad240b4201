import { execFile } from "node:child_process";
import { cpSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { promisify } from "node:util";
import {
  buildImage,
  engineSocket,
  openTestEngine,
  probeEngine,
  readText as readOutput,
  type TestImage,
  tarEntry,
} from "@sandgate/test-support/images";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { findFreePort } from "@sandgate/test-support/process";
import { probeRegistry, startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Client, createClient, expectStatus } from "../conformance/client.ts";
import { readCompose, readText, root } from "./deployment.ts";

const execute = promisify(execFile);

const { BASE_IMAGE, MONGODB_IMAGE, NATS_IMAGE } = process.env;
const composeFile = readText("deploy/compose/compose.yaml");
const dockerfile = readText("deploy/Dockerfile");
const images = [
  BASE_IMAGE ?? /^ARG BASE_IMAGE=(.+)$/m.exec(dockerfile)?.[1],
  MONGODB_IMAGE ?? /\$\{MONGODB_IMAGE:-(.+)\}/.exec(composeFile)?.[1],
  NATS_IMAGE ?? /\$\{NATS_IMAGE:-(.+)\}/.exec(composeFile)?.[1],
];

/** Images of a gigabyte in all are used where they are, and not fetched for a test. */
async function probeCompose(): Promise<void> {
  await probeEngine();
  await probeRegistry();
  await execute("docker", ["compose", "version"]);
  for (const image of images) {
    await execute("docker", ["image", "inspect", String(image)]).catch((cause) => {
      throw new Error(`the engine has no ${image} (docker pull ${image})`, { cause });
    });
  }
}

describe.runIf(await requireServer("docker", probeEngine))("containers like those of the compose file", () => {
  const isVolume = (mount: string) => Object.keys(readCompose().volumes).includes(mount.split(":")[0] ?? "");
  const withData = Object.entries(readCompose().services).flatMap(([name, service]) => {
    const mount = service.volumes?.find((each) => isVolume(each) && each.endsWith(":/data"));
    return mount && service.command?.[0]?.endsWith("main.ts") ? [{ name, service }] : [];
  });
  const engine = openTestEngine();
  let base: TestImage;
  const image = `sandgate-test/${crypto.randomUUID()}`;

  beforeAll(async () => {
    base = await buildImage(engine, { command: [] });
    const lines = dockerfile.match(/^(RUN .* \/data|USER .*)$/gm) ?? [];
    expect(lines).toHaveLength(2);
    const body = Buffer.from([`FROM ${base.reference}`, ...lines].join("\n"));
    const context = Buffer.concat([tarEntry("Dockerfile", { type: "0", mode: 0o644, body }), Buffer.alloc(1024)]);
    await readOutput(await engine.buildImage(Readable.from([context]), { t: image, networkmode: "none" }));
  });
  afterAll(async () => {
    await engine.getImage(image).remove();
    await base.remove();
  });

  test.each(withData)("$name can write to its volume", async ({ service }) => {
    const volume = await engine.createVolume();
    const container = await engine.createContainer({
      Image: image,
      Cmd: ["sh", "-c", "mkdir -m 700 /data/made && echo written > /data/made/file && cat /data/made/file"],
      User: service.user ?? "",
      Tty: true,
      HostConfig: {
        Binds: [`${volume.name}:/data`],
        CapDrop: service.cap_drop,
        CapAdd: service.cap_add,
        SecurityOpt: service.security_opt,
        NetworkMode: service.network_mode ?? "none",
        UsernsMode: service.userns_mode,
        ReadonlyRootfs: true,
      },
    });
    try {
      await container.start();
      await container.wait();
      expect(String(await container.logs({ stdout: true }))).toBe("written\r\n");
    } finally {
      await container.remove({ force: true });
      await volume.remove();
    }
  });
});

describe.runIf(await requireServer("compose", probeCompose))("the composed platform", { timeout: 300_000 }, () => {
  const project = `sandgate-test-${process.pid}`;
  const platformNet = "172.30.86";
  /** The host's address in the platform's network. */
  const gateway = `${platformNet}.1`;
  const image = `${project}:built`;
  let removeFolder: () => Promise<void>;
  let folder: string;
  let env: NodeJS.ProcessEnv;
  let url: string;
  let page: TestImage;
  let registry: TestRegistry | undefined;

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
      PLATFORM_NET: platformNet,
      REGISTRY_ALLOW: gateway,
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
    await registry?.stop();
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
    const { images } = expectStatus(await client.get("/sandbox-images", operator), 200);
    const provision = async (image_id: string = images[0].id) => {
      const body = { image_id };
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
    const pulled = await provision(await registerPulled(client, operator));
    for (const each of [id, another, pulled]) {
      expectStatus(await client.delete(`/sandboxes/${each}`, operator), 204);
    }
  });

  /** Registers an image that the engine doesn't have, in a registry at the host's address; returns its id. */
  async function registerPulled(client: Client, as: { token: string; workspace: string }): Promise<string> {
    registry = await startRegistry({ address: gateway });
    const made = await makeImage({ command: ["sleep", "3600"] });
    const image = await pushImage(made, { host: registry.host, repository: "team/app" });
    return expectStatus(await client.post("/sandbox-images", { name: "pulled", image, memory_mb: 256 }, as), 201).id;
  }
});
