import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import type Docker from "dockerode";
import { readText } from "./images.ts";
import { findFreePort, startProcess } from "./process.ts";
import { createTempFolder } from "./temp-folder.ts";

const execute = promisify(execFile);

export interface Credential {
  username: string;
  password: string;
}

/** A real private registry, as a rule on the loopback address, where engines speak plain HTTP to it. */
export interface TestRegistry {
  /** `address:port` */
  host: string;
  /**
   * Pushes an image of the engine as `host/repository:tag` and returns its digest, `sha256:…`. The engine keeps no tag
   * of it.
   */
  push(engine: Docker, imageId: string, repository: string, tag: string, credential?: Credential): Promise<string>;
  /** Also removes all it stored. */
  stop(): Promise<void>;
}

/** Throws, saying what is missing, unless a registry can be started. For `requireServer("registry", …)`. */
export async function probeRegistry(): Promise<void> {
  for (const [program, debianPackage] of [
    ["docker-registry", "docker-registry"],
    ["htpasswd", "apache2-utils"],
  ]) {
    await execute("sh", ["-c", `command -v ${program}`]).catch((cause: unknown) => {
      throw new Error(`${program} was not found (Debian's package ${debianPackage})`, { cause });
    });
  }
}

/**
 * Starts a registry that knows these users; with none it is open to all. `address`: where it listens, 127.0.0.1 unless
 * given.
 */
export async function startRegistry(
  o: { users?: readonly Credential[]; address?: string } = {},
): Promise<TestRegistry> {
  await probeRegistry();
  const { path: folder, remove: removeFolder } = await createTempFolder();
  const { users = [], address = "127.0.0.1" } = o;
  const host = `${address}:${await findFreePort(address)}`;
  const lines: string[] = [];
  for (const { username, password } of users) {
    const { stdout } = await execute("htpasswd", ["-Bbn", username, password]);
    lines.push(stdout.trim());
  }
  await writeFile(join(folder, "htpasswd"), `${lines.join("\n")}\n`);
  const config = {
    version: "0.1",
    log: { level: "warn" },
    storage: { filesystem: { rootdirectory: join(folder, "data") }, delete: { enabled: true } },
    http: { addr: host, secret: crypto.randomUUID() },
    ...(users.length > 0 && { auth: { htpasswd: { realm: "test", path: join(folder, "htpasswd") } } }),
  };
  // JSON is YAML.
  await writeFile(join(folder, "config.yml"), JSON.stringify(config));
  const server = startProcess("docker-registry", ["serve", join(folder, "config.yml")], {
    env: { PATH: process.env.PATH },
  });
  const answers = () =>
    fetch(`http://${host}/v2/`).then(
      (response) => response.status === (users.length > 0 ? 401 : 200),
      () => false,
    );
  while (!(await answers())) {
    if (server.child.exitCode !== null) throw new Error(`the registry did not start: ${server.output()}`);
    await delay(50);
  }
  return {
    host,
    async push(engine, imageId, repository, tag, credential) {
      const repo = `${host}/${repository}`;
      await engine.getImage(imageId).tag({ repo, tag });
      const image = engine.getImage(`${repo}:${tag}`);
      try {
        const auth = { username: "", password: "", ...credential, serveraddress: host };
        const output = await readText(await image.push({ tag }, undefined, auth));
        const digest = /"Digest":"(sha256:[0-9a-f]{64})"/.exec(output)?.[1];
        if (digest === undefined) throw new Error(`the push failed: ${output}`);
        return digest;
      } finally {
        await image.remove();
      }
    },
    async stop() {
      await server.stop();
      await removeFolder();
    },
  };
}
