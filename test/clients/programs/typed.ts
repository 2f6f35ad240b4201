// What a type checker sees of the client. It is checked, and not run: `package.test.ts`.
import { CommandFailed, type LogEntry, Sandbox, Sandgate, SandgateError } from "@sandgate/client";
import { readStoredLogin } from "@sandgate/client/stored-login";

await using sandbox = await Sandbox.create("default", { labels: { a: "b" }, ttlSeconds: 900, maxRetries: 1 });
export const text: string = await sandbox.files.read("/a");
export const bytes: Uint8Array = await sandbox.files.read("/a", { format: "bytes" });
export const exitCode: number = (await sandbox.commands.run(["ls"], { check: true })).exitCode;
export const lines: LogEntry[] = await sandbox.logs();
export const sizes: number[] = [];
for await (const { log } of sandbox.logs({ follow: true })) sizes.push(log.length);
const terminal = await sandbox.pty.create({ onData: (data) => sizes.push(data.byteLength) });
await terminal.resize({ cols: 80, rows: 24 });
const sandgate = await Sandgate.signIn({
  username: "a",
  password: "b",
  onRefresh: ({ accessToken }) => void sizes.push(accessToken.length),
});
export const token: string = (await sandgate.apiTokens.create({ description: "a", permissions: ["read"] })).token;
export const names: string[] = (await sandgate.images.list()).map(({ name }) => name);
export const url: string | undefined = (await readStoredLogin()).url;
try {
  await sandgate.members.create({ username: "a", role: "admin" });
} catch (error) {
  if (error instanceof CommandFailed) sizes.push(error.exitCode ?? 0);
  if (error instanceof SandgateError) sizes.push(error.requestId?.length ?? 0);
}
// @ts-expect-error: a field that a record doesn't have
sandbox.record.misspelled;
// @ts-expect-error: a format that there isn't
await sandbox.files.read("/a", { format: "lines" });
// @ts-expect-error: a description is needed
await sandgate.apiTokens.create({});
