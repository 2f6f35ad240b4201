import { type IncomingMessage, request } from "node:http";
import { text } from "node:stream/consumers";
import { openSandboxHost } from "../conformance/sandbox-host.ts";
import { type UsedPlatform, usePlatform } from "../platform/given.ts";
import { unlimitedSandboxes } from "../platform/limits.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { type Operator, openOperator } from "../platform/operator.ts";

/** The domain of the platform under test. Nothing of it is asked of a name server. */
export const domain = "e2b.test";

export const settingsOfPrograms = { SANDGATE_E2B_DOMAIN: domain, ...unlimitedSandboxes };

/** A platform that programs written for E2B can use, by the environment variables of this process. */
export interface ProgramHost<P extends UsedPlatform = TestPlatform> {
  platform: P;
  operator: Operator;
  /** The id of the image that a program gets that names none. */
  baseId: string;
  /** What the host of sandboxes calls it. */
  baseReference: string;
  /** What a program sets to use the platform. */
  env: Record<string, string>;
  close(): Promise<void>;
}

const users = [
  "root:x:0:0:root:/root:/bin/sh",
  "ada:x:1000:1000:Ada:/home/ada:/bin/sh",
  "nobody:x:65534:65534:nobody:/:/bin/false",
].join("\n");

/** On a platform of its own. */
export async function openProgramHost(settings: Record<string, string> = {}): Promise<ProgramHost> {
  return openHostOn(await startPlatform({ settings: { ...settingsOfPrograms, ...settings } }));
}

/** On the platform that was given, if one was. */
export async function useProgramHost(): Promise<ProgramHost<UsedPlatform>> {
  return openHostOn(await usePlatform({ settings: settingsOfPrograms }));
}

async function openHostOn<P extends UsedPlatform>(platform: P): Promise<ProgramHost<P>> {
  const image = await openSandboxHost().makeImage({
    command: ["sleep", "100000"],
    files: {
      "/etc/passwd": `${users}\n`,
      "/etc/group": "root:x:0:\nada:x:1000:\n",
      "/root/.keep": "",
      "/home/ada/.keep": "",
    },
  });
  const operator = await openOperator(platform);
  const baseId = await operator.registerImage(image.reference, { name: "base", memory_mb: 256 });
  const env = {
    E2B_API_KEY: toKey(operator.as.token),
    E2B_DOMAIN: domain,
    E2B_API_URL: `${platform.url}/e2b`,
    E2B_SANDBOX_URL: `${platform.url}/e2b/envd`,
  };
  Object.assign(process.env, env);
  return {
    platform,
    operator,
    baseId,
    baseReference: image.reference,
    env,
    async close() {
      for (const name of Object.keys(env)) delete process.env[name];
      await platform.stop();
      await image.remove();
    },
  };
}

/** The form of an API token that E2B's SDKs take for a key. */
export function toKey(token: string): string {
  return `e2b_${Buffer.from(token).toString("hex")}`;
}

/** What is sent to a host that no name server knows. */
export interface Asked {
  method?: string;
  headers?: Record<string, string>;
  body?: string | Uint8Array;
}

/** Opens a path on a host below the domain; the answer's body is still to be read. */
export function openHost(platformUrl: string, hostName: string, path: string, o: Asked = {}): Promise<IncomingMessage> {
  const { method = "GET", headers, body } = o;
  const { hostname, port } = new URL(platformUrl);
  return new Promise((resolve, reject) => {
    request({ hostname, port, path, method, headers: { ...headers, host: hostName } }, resolve)
      .on("error", reject)
      .end(body);
  });
}

export async function askHost(
  platformUrl: string,
  hostName: string,
  path: string,
  o: Asked = {},
): Promise<{ status: number | undefined; body: string }> {
  const answer = await openHost(platformUrl, hostName, path, o);
  return { status: answer.statusCode, body: await text(answer) };
}
