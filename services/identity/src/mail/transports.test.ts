import { once } from "node:events";
import { readdir, readFile, stat, utimes, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { createLogger } from "@sandgate/kit/base/logging";
import { type ReceivedMail, startMailServer } from "@sandgate/test-support/mail-server";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { createSmtpTransport } from "./smtp.ts";
import { composeNameTaken, composeVerification } from "./texts.ts";
import { createFileTransport, RecipientRefused, sweepMailFiles } from "./transports.ts";

const logger = createLogger({ service: "identity", level: "silent" });
const token = "t".repeat(43);
const mail = composeVerification({ to: "ann@example.com", publicUrl: "https://sandgate.example/api", token });
const from = "Sandgate <sandgate@example.com>";

let folder: string;
test.beforeEach(async ({ folder: own }) => {
  folder = own;
});

test("mails name the platform's address, and only a verification carries a token", () => {
  expect(mail.text).toContain(`https://sandgate.example/api/auth/verify-email?token=${token}\n`);
  expect(composeNameTaken({ to: "ann@example.com", publicUrl: "https://s" }).text).not.toContain("token");
});

test("without an SMTP server each mail is a file that only its owner reads, with the link in one piece", async () => {
  const transport = createFileTransport({ folder: join(folder, "mail"), from, logger });
  await transport.send("mail-1", mail);
  await transport.send("mail-2", mail);
  await transport.send("mail-2", mail);
  expect((await readdir(join(folder, "mail"))).toSorted()).toEqual(["mail-1.eml", "mail-2.eml"]);
  const file = join(folder, "mail", "mail-1.eml");
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  const text = await readFile(file, "utf8");
  expect(text).toMatch(/^To: ann@example.com$/m);
  expect(text).toMatch(/^From: Sandgate <sandgate@example.com>$/m);
  expect(text).toContain(`?token=${token}\n`);
});

test("mails in files are removed after a week, also what a crash left half written, and nothing else", async () => {
  const mailFolder = join(folder, "mail");
  const now = new Date();
  await sweepMailFiles(mailFolder, now);
  const transport = createFileTransport({ folder: mailFolder, from, logger });
  for (const id of ["old", "new"]) await transport.send(id, mail);
  for (const name of ["half.eml.part", "notes.txt"]) await writeFile(join(mailFolder, name), "");
  const dayMs = 24 * 3_600_000;
  for (const [name, days] of [
    ["old.eml", 7.1],
    ["new.eml", 6.9],
    ["half.eml.part", 8],
    ["notes.txt", 8],
  ] as const) {
    const written = new Date(now.getTime() - days * dayMs);
    await utimes(join(mailFolder, name), written, written);
  }
  await sweepMailFiles(mailFolder, now);
  expect((await readdir(mailFolder)).toSorted()).toEqual(["new.eml", "notes.txt"]);
});

test("with an SMTP server mails are sent to it", async () => {
  const received: ReceivedMail[] = [];
  await using server = await startMailServer({ receive: (each) => void received.push(each) });
  const transport = createSmtpTransport({ url: `smtp://127.0.0.1:${server.port}`, from });
  try {
    await transport.send("mail-1", mail);
  } finally {
    transport.close();
  }
  expect(received).toMatchObject([{ to: ["ann@example.com"] }]);
  expect(received[0]?.text).toContain(`?token=${token}\r\n`);
  expect(received[0]?.text).toMatch(/^Message-ID: <mail-1@sandgate>\r$/m);
});

test.each([
  ["550 5.1.1 No such user: ann@example.com", true],
  ["550 relay not permitted", false],
  ["452 4.2.2 The mailbox is full", false],
  ["554 5.7.1 Relay access denied", false],
  ["550 5.1.8 The sender's domain is unknown", false],
])("tells a recipient whom the server refuses from other failures: %s", async (answer, isPermanent) => {
  const server = createServer((socket) => {
    const answers: Record<string, string> = { EHLO: "250 here", MAIL: "250 ok", RCPT: answer, QUIT: "221 bye" };
    socket.write("220 here\r\n");
    socket.on("data", (line) => socket.write(`${answers[line.toString().slice(0, 4)] ?? "500 what?"}\r\n`));
    socket.on("error", () => {});
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("The server has no port.");
  const transport = createSmtpTransport({ url: `smtp://127.0.0.1:${address.port}`, from });
  const refused = transport.send("mail-1", mail);
  await expect(refused).rejects.toBeInstanceOf(RecipientRefused);
  await expect(refused).rejects.toMatchObject({ code: Number(answer.slice(0, 3)), isPermanent });
  transport.close();
  server.close();
});

test.each([
  ["lines", "220-more\r\n"],
  ["one line", "220 more "],
])("sending fails when the SMTP server's greeting doesn't end: %s", async (_what, text) => {
  const server = createServer((socket) => {
    const greet = () => {
      while (socket.write(text.repeat(1_000)));
    };
    socket.on("error", () => {}).on("drain", greet);
    greet();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("The server has no port.");
  const transport = createSmtpTransport({ url: `smtp://127.0.0.1:${address.port}`, from });
  await expect(transport.send("mail-1", mail)).rejects.toThrow(/response/i);
  server.close();
});

test("sending fails when the SMTP server can't be reached", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("The server has no port.");
  await new Promise((resolve) => server.close(resolve));
  const transport = createSmtpTransport({ url: `smtp://127.0.0.1:${address.port}`, from });
  await expect(transport.send("mail-1", mail)).rejects.toThrow("ECONNREFUSED");
});
