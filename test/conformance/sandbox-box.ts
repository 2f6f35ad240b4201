import { expectStatus, type RequestOptions, uniqueName } from "./client.ts";
import { openEventStream, readEvents, type StreamEvent } from "./event-stream.ts";
import { type HostImage, type ImageContent, openSandboxHost } from "./sandbox-host.ts";
import { openTarget, type Target, type Tenant } from "./target.ts";

// biome-ignore lint/suspicious/noExplicitAny: the record is what the test expects it to be
type Process = any;

/** A ready sandbox with busybox, in which tests run commands. */
export interface Box {
  target: Target;
  owner: Tenant;
  stranger: Tenant;
  id: string;
  name: string;
  /** "/sandboxes/<id>" and what follows. */
  path(rest: string): string;
  as(tenant?: Tenant): RequestOptions;
  /** An answer whose body isn't text, to be read as it comes. */
  fetch(rest: string, init?: RequestInit): Promise<Response>;
  /** Runs a command: a list, a text, or a whole body. Expects 200. */
  exec(command: string | readonly string[] | object): Promise<Process>;
  /** The same, followed by events. */
  follow(command: string | readonly string[] | object, signal?: AbortSignal): Promise<AsyncGenerator<StreamEvent>>;
  start(command: string | readonly string[] | object): Promise<Process>;
  read(processId: string): Promise<Process>;
  wait(processId: string, timeoutSeconds?: number): Promise<Process>;
  kill(processId: string): Promise<void>;
  /** Another sandbox of the same image. */
  provision(): Promise<string>;
  close(): Promise<void>;
}

/** Ends the helper as a tenant may. What runs this isn't found by it. */
export const killHelper =
  "cd /proc; for each in [0-9]*; do case $(tr '\\0' ' ' < $each/cmdline) in *[h]elper*daemon*) kill -9 $each;; esac; done";

const users = [
  "root:x:0:0:root:/root:/bin/sh",
  "ada:x:1000:1000:Ada:/home/ada:/bin/sh",
  "nobody:x:65534:65534:nobody:/:/bin/false",
].join("\n");

export async function openBox(
  o: Partial<Omit<ImageContent, "command">> & { memoryMb?: number; settings?: Record<string, string> } = {},
): Promise<Box> {
  const { memoryMb = 512, settings, ...content } = o;
  const image: HostImage = await openSandboxHost().makeImage({
    ...content,
    command: ["sleep", "100000"],
    files: {
      "/etc/passwd": `${users}\n`,
      "/etc/group": "root:x:0:\nada:x:1000:\n",
      "/root/.keep": "",
      "/home/ada/.keep": "",
      ...content.files,
    },
  });
  const target = await openTarget(settings);
  const [owner, stranger] = [await target.newTenant(), await target.newTenant()];
  const as = (tenant = owner) => ({ token: tenant.token, workspace: tenant.workspace });
  const registered = await target.post(
    "/sandbox-images",
    {
      name: uniqueName("box"),
      image: image.reference,
      is_default: true,
      memory_mb: memoryMb,
      ttl_seconds: 7200,
    },
    as(target.operator),
  );
  const image_id: string = expectStatus(registered, 201).id;
  const provisioned: string[] = [];

  async function provision(): Promise<{ id: string; name: string }> {
    const { id, name } = expectStatus(await target.post("/sandboxes/provision", { image_id }, as()), 201);
    provisioned.push(id);
    expectStatus(await target.post("/sandboxes/wait", { sandbox_id: id, timeout_seconds: 240 }, as()), 200);
    return { id, name };
  }
  const { id, name } = await provision();
  const path = (rest: string) => `/sandboxes/${id}/${rest}`;

  return {
    target,
    owner,
    stranger,
    id,
    name,
    path,
    as,
    fetch: (rest, init = {}) =>
      fetch(target.url + path(rest), {
        ...init,
        headers: {
          authorization: `Bearer ${owner.token}`,
          "x-workspace-id": owner.workspace,
          ...(init.headers as Record<string, string>),
        },
      }),
    async exec(command) {
      return expectStatus(await target.post(path("exec"), bodyOf(command), as()), 200);
    },
    async follow(command, signal) {
      const url = target.url + path("exec");
      return readEvents(await openEventStream(url, { ...owner, body: bodyOf(command), ...(signal && { signal }) }));
    },
    async start(command) {
      return expectStatus(await target.post(path("processes"), bodyOf(command), as()), 201);
    },
    async read(processId) {
      return expectStatus(await target.get(path(`processes/${processId}`), as()), 200);
    },
    async wait(processId, timeoutSeconds = 60) {
      const body = { timeout_seconds: timeoutSeconds };
      return expectStatus(await target.post(path(`processes/${processId}/wait`), body, as()), 200);
    },
    async kill(processId) {
      expectStatus(await target.post(path(`processes/${processId}/signal`), { signal: "SIGKILL" }, as()), 204);
    },
    provision: async () => (await provision()).id,
    async close() {
      for (const each of provisioned) await target.delete(`/sandboxes/${each}`, as());
      await target.close();
      await image.remove();
    },
  };
}

function bodyOf(command: string | readonly string[] | object): object {
  return typeof command === "string" || Array.isArray(command) ? { command } : command;
}
