import { execFile, spawn } from "node:child_process";
import { cp, mkdir, readFile, symlink } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { promisify } from "node:util";
import Docker from "dockerode";

const execute = promisify(execFile);

/** Where the engine under test is: DOCKER_HOST, else the socket at its usual place. */
export const engineAddress = process.env.DOCKER_HOST || "docker:///var/run/docker.sock";
/** The path of its socket. */
export const engineSocket = new URL(engineAddress).pathname;

/** A client of the engine under test: DOCKER_HOST, else the socket at its usual place. */
export function openTestEngine(): Docker {
  return new Docker();
}

/**
 * Throws, saying what is missing, unless there is an engine, the right to set the firewall rules that isolate sandboxes,
 * and what images are made of. For `requireServer("docker", …)`.
 */
export async function probeEngine(): Promise<void> {
  await openTestEngine().ping();
  await probeFirewall();
  await listApplets();
}

/** Throws unless this user may set the firewall rules that isolate sandboxes. */
export async function probeFirewall(): Promise<void> {
  await execute("iptables", ["-w", "5", "-t", "mangle", "-S"]);
}

/** The names of all programs in the machine's busybox. */
export async function listApplets(): Promise<string[]> {
  try {
    const { stdout } = await execute("busybox", ["--list"]);
    return stdout.trim().split("\n");
  } catch (cause) {
    throw new Error("busybox was not found (Debian's package busybox-static)", { cause });
  }
}

export interface TestImage {
  /** The image's id on the engine, `sha256:…`. */
  id: string;
  /** `repository:tag`. An image without one would go with the last tag that is taken from it. */
  reference: string;
  /** Also removes the containers that run it: the platform under test may go on. */
  remove(): Promise<void>;
}

/**
 * Makes a small image of the machine's static busybox, without any registry: /bin/busybox with a link for each of its
 * programs, `files` besides (path to content), and `command` as its CMD. Two images differ at least in /etc/image-id,
 * so that the engine holds nothing of one for having another. `programs`: those linked, all unless given.
 */
export async function buildImage(
  engine: Docker,
  o: {
    command: readonly string[];
    files?: Readonly<Record<string, string>>;
    programs?: readonly string[];
    /** `repository:tag`; one of its own unless given. */
    reference?: string;
    /** More lines of a Dockerfile, such as `EXPOSE 80`. */
    changes?: readonly string[];
  },
): Promise<TestImage> {
  const { stdout } = await execute("sh", ["-c", "command -v busybox"]);
  const applets = o.programs ?? (await listApplets());
  const archive = Buffer.concat([
    ...["bin/", "etc/", "tmp/", "var/", "www/"].map((name) => tarEntry(name, { type: "5", mode: 0o755 })),
    tarEntry("bin/busybox", { type: "0", mode: 0o755, body: await readFile(stdout.trim()) }),
    ...applets
      .filter((name) => name !== "busybox")
      .map((name) => tarEntry(`bin/${name}`, { type: "2", mode: 0o777, link: "busybox" })),
    tarEntry("etc/image-id", { type: "0", mode: 0o644, body: Buffer.from(crypto.randomUUID()) }),
    ...Object.entries(o.files ?? {}).map(([path, text]) =>
      tarEntry(path.replace(/^\//, ""), { type: "0", mode: 0o644, body: Buffer.from(text) }),
    ),
    Buffer.alloc(1024),
  ]);
  return importImage(engine, Readable.from([archive]), {
    ...o,
    changes: [commandLine(o.command), ...(o.changes ?? [])],
  });
}

/**
 * Makes an image of a folder's files, which are root's, and of the machine's static busybox, whose programs are in /bin, without
 * any registry.
 */
export async function buildFolderImage(
  engine: Docker,
  folder: string,
  o: { command: readonly string[]; changes?: readonly string[] },
): Promise<TestImage> {
  const { stdout } = await execute("sh", ["-c", "command -v busybox"]);
  await mkdir(join(folder, "bin"), { recursive: true });
  await mkdir(join(folder, "tmp"), { recursive: true });
  await cp(stdout.trim(), join(folder, "bin/busybox"), { dereference: true });
  for (const name of (await listApplets()).filter((name) => name !== "busybox")) {
    await symlink("busybox", join(folder, "bin", name)).catch((error: NodeJS.ErrnoException) => {
      // The folder has a program of its own by this name.
      if (error.code !== "EEXIST") throw error;
    });
  }
  const tar = spawn("tar", ["-c", "-C", folder, "--owner=0", "--group=0", "--numeric-owner", "."]);
  const changes = [commandLine(o.command), ...(o.changes ?? [])];
  return importImage(engine, tar.stdout, { changes });
}

function commandLine(command: readonly string[]): string {
  return `CMD ${JSON.stringify(command)}`;
}

/** Makes an image of a tar archive of its files. */
async function importImage(
  engine: Docker,
  archive: NodeJS.ReadableStream,
  o: { reference?: string; changes: readonly string[] },
): Promise<TestImage> {
  const reference = o.reference ?? `sandgate-test/${crypto.randomUUID()}:1`;
  const [repo, tag] = splitTag(reference);
  const answer = await engine.importImage(archive, { repo, tag, changes: [...o.changes] });
  const id = /"status":"(sha256:[0-9a-f]+)"/.exec(await readText(answer))?.[1];
  if (id === undefined) throw new Error("the engine did not import the image");
  return {
    id,
    reference,
    async remove() {
      for (let users = await listUsers(engine, id); users.length > 0; users = await listUsers(engine, id)) {
        await Promise.all(users.map((user) => removeContainer(engine, user)));
      }
      await engine.getImage(id).remove({ force: true });
    },
  };
}

/** The ids of the containers of an image, in whatever state. */
async function listUsers(engine: Docker, imageId: string): Promise<string[]> {
  const containers = await engine.listContainers({ all: true, filters: { ancestor: [imageId] } });
  return containers.map(({ Id }) => Id);
}

/** One that somebody else removes at the same time is no failure. */
async function removeContainer(engine: Docker, id: string): Promise<void> {
  const removal = engine.getContainer(id).remove({ force: true, v: true });
  await removal.catch((error: { statusCode?: number }) => {
    if (error.statusCode !== 404 && error.statusCode !== 409) throw error;
  });
}

/** The repository and the tag of a reference that has a tag. */
function splitTag(reference: string): [repository: string, tag: string] {
  const colon = reference.lastIndexOf(":");
  return [reference.slice(0, colon), reference.slice(colon + 1)];
}

/** All that a stream of the engine says. */
export async function readText(stream: NodeJS.ReadableStream): Promise<string> {
  let text = "";
  for await (const chunk of stream.setEncoding("utf8")) text += chunk;
  return text;
}

/** One ustar entry: type 0 is a file, 2 a symbolic link, 5 a directory. */
export function tarEntry(
  name: string,
  o: { type: "0" | "2" | "5"; mode: number; link?: string; body?: Buffer },
): Buffer {
  const body = o.body ?? Buffer.alloc(0);
  const header = Buffer.alloc(512);
  const octal = (value: number, length: number) => `${value.toString(8).padStart(length - 1, "0")}\0`;
  header.write(name, 0, 100);
  header.write(octal(o.mode, 8), 100);
  header.write(octal(0, 8), 108);
  header.write(octal(0, 8), 116);
  header.write(octal(body.length, 12), 124);
  header.write(octal(0, 12), 136);
  header.write(" ".repeat(8), 148);
  header.write(o.type, 156);
  header.write(o.link ?? "", 157, 100);
  header.write("ustar\u000000", 257);
  header.write(
    octal(
      header.reduce((sum, byte) => sum + byte, 0),
      7,
    ),
    148,
  );
  return Buffer.concat([header, body, Buffer.alloc((512 - (body.length % 512)) % 512)]);
}

/** An image whose containers write these lines, and then run until they are stopped. */
export function buildLoggingImage(engine: Docker, lines: readonly string[]): Promise<TestImage> {
  const say = lines.map((line) => `echo "${line}"`).join("; ");
  return buildImage(engine, { command: ["sh", "-c", `trap 'exit 0' TERM; ${say}; sleep 3600 & wait`] });
}

/** Whose container it is. */
interface SandboxOwner {
  sandboxId: string;
  workspaceId: string;
  installationId: string;
}

/** The name and the labels by which the platform knows a sandbox's container. */
export function sandboxIdentity(owner: SandboxOwner): { name: string; Labels: Record<string, string> } {
  return { name: `sandgate-${owner.sandboxId}`, Labels: sandboxLabels(owner) };
}

/** The labels alone. */
export function sandboxLabels(owner: SandboxOwner): Record<string, string> {
  return {
    "sandgate.io/sandbox-id": owner.sandboxId,
    "sandgate.io/workspace-id": owner.workspaceId,
    "sandgate.io/installation": owner.installationId,
  };
}

/** Starts a container that is labelled as a sandbox's. */
export async function runSandboxContainer(
  engine: Docker,
  o: SandboxOwner & {
    image: TestImage;
    script: string;
    /** The engine's own unless given. */
    logConfig?: Docker.HostConfig["LogConfig"];
  },
): Promise<Docker.Container> {
  const container = await engine.createContainer({
    Image: o.image.id,
    Cmd: ["sh", "-c", o.script],
    ...sandboxIdentity(o),
    HostConfig: { NetworkMode: "none", ...(o.logConfig && { LogConfig: o.logConfig }) },
  });
  await container.start();
  return container;
}
