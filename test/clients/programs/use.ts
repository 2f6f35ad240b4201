// Uses a sandbox, on whatever runs this: `typescript-runtimes.test.ts`.
import { CommandFailed, Sandbox, Sandgate } from "@sandgate/client";

function check(holds: unknown, what: string): asserts holds {
  if (!holds) throw new Error(what);
}

async function until(check: () => boolean): Promise<void> {
  for (let tries = 0; !check(); tries++) {
    if (tries > 600) throw new Error("it did not come");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function use(): Promise<void> {
  await using sandbox = await Sandbox.create("default", {
    command: ["sh", "-c", "echo begun; exec httpd -f -p 8080 -h /www"],
  });
  const result = await sandbox.commands.run("cat; echo bad >&2; exit 3", { stdin: "ä" });
  check(result.stdout === "ä" && result.stderr === "bad\n" && result.exitCode === 3, "run");
  const failed = await sandbox.commands.run("exit 7", { check: true }).catch((error: unknown) => error);
  check(failed instanceof CommandFailed && failed.exitCode === 7, "check");
  const controller = new AbortController();
  const stopped = sandbox.commands.run("echo begun; exec sleep 1001", {
    signal: controller.signal,
    onStdout: () => controller.abort(new Error("enough")),
  });
  check((await stopped.catch((error: Error) => error.message)) === "enough", "abort");

  const bytes = crypto.getRandomValues(new Uint8Array(60_000));
  await sandbox.files.write("/tmp/a.bin", new Blob([bytes]).stream());
  const read = await sandbox.files.read("/tmp/a.bin", { format: "bytes" });
  check(read.length === bytes.length && read.every((byte, i) => byte === bytes[i]), "files");
  await sandbox.files.download("/tmp/a.bin", "a.bin");
  check((await sandbox.files.upload("a.bin", "/tmp/b.bin")).size === bytes.length, "local files");

  const changes: string[] = [];
  const watch = await sandbox.files.watch("/tmp", ({ path }) => changes.push(String(path)));
  await sandbox.files.makeDir("/tmp/watched");
  await until(() => changes.includes("/tmp/watched"));
  watch.stop();
  await watch.closed;

  let shown = "";
  const onData = (data: Uint8Array) => {
    shown += new TextDecoder().decode(data);
  };
  const terminal = await sandbox.pty.create({ cols: 100, rows: 30, onData });
  terminal.write("stty size; exit 4\n");
  check((await terminal.wait()).exitCode === 4 && shown.includes("30 100"), "terminal");

  check((await (await sandbox.fetch(8080, "/")).text()).length > 0, "fetch");
  const { readable, writable } = await sandbox.ports.connect(8080);
  const writer = writable.getWriter();
  await writer.write(new TextEncoder().encode("GET / HTTP/1.0\r\n\r\n"));
  check((await new Response(readable).text()).startsWith("HTTP/1."), "connect");

  for await (const { log } of sandbox.logs({ follow: true })) {
    check(log === "begun", "logs");
    break;
  }
}

await use();
const names = (await new Sandgate().images.list()).map(({ name }) => name);
check(names.includes("default"), "images");
