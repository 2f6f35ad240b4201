// A web server in a sandbox, and a link by which somebody else sees it.
import { Sandbox } from "@sandgate/client";

await using sandbox = await Sandbox.create("python", { labels: { purpose: "preview" }, ttlSeconds: 3600 });
await sandbox.files.write("/tmp/site/index.html", "<title>Hello</title><h1>Hello from a sandbox</h1>", {
  parents: true,
});
const server = await sandbox.commands.start(["python3", "-u", "-m", "http.server", "3000"], { cwd: "/tmp/site" });
// It says so once it listens.
for await (const { data } of server.output) if (data.includes("Serving")) break;

// A private preview: a link lets one browser in, and programs send the token. With `public: true` the address will do.
const preview = await sandbox.ports.open(3000, { ttlSeconds: 3600 });
const link = await sandbox.ports.link(preview.id);
console.log(`Share this link, which works once: ${link.url}`);
console.log(`For programs: curl -H 'X-Sandgate-Token: ${preview.token}' ${preview.url}`);
console.log("Ctrl-C stops the sandbox. What is asked of the server:");
let ending: Promise<void> | undefined;
process.once("SIGINT", () => {
  ending = server.kill();
});
for await (const { data } of server.output) process.stdout.write(data);
await ending;
