import { join } from "node:path";
import { backoffMs } from "@sandgate/kit/base/backoff";
import { createLogger } from "@sandgate/kit/base/logging";
import { openKeyring } from "@sandgate/kit/storage/sealing";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { describe, expect } from "vitest";
import type { DueMail } from "../domain/mails.ts";
import { composeVerification, type Mail } from "../mail/texts.ts";
import { type MailTransport, RecipientRefused } from "../mail/transports.ts";
import { createMailQueue, mailBackoff } from "./mail-queue.ts";

const logger = createLogger({ service: "identity", level: "silent" });
const token = "t".repeat(43);
const mail = composeVerification({ to: "ann@example.com", publicUrl: "https://sandgate.example/api", token });

let folder: string;
test.beforeEach(async ({ folder: own }) => {
  folder = own;
});

test("a failed mail is tried again with a backoff of at most ten minutes", () => {
  const longest = () => 1;
  expect([1, 2, 3, 8, 51].map((failures) => backoffMs(failures, mailBackoff, longest))).toEqual([
    5_000, 10_000, 20_000, 600_000, 600_000,
  ]);
});

describe("the mail queue", () => {
  /** A store in memory: what is due, and a log of what became of it. */
  function createMailStore() {
    const due: DueMail[] = [];
    const log: string[] = [];
    return {
      due,
      log,
      mails: {
        add: async () => undefined,
        takeDue: async () => due.splice(0),
        finish: async (id: string) => void log.push(`finished ${id}`),
        postpone: async (id: string, until: Date) => void log.push(`postponed ${id} to ${until.getTime()}`),
      },
    };
  }

  async function openQueue(send: MailTransport["send"]) {
    const keyring = await openKeyring({ file: join(folder, "keys.json"), create: true });
    const store = createMailStore();
    const transport: MailTransport = { send, close: () => undefined };
    const clock = { ms: 1000 };
    const times = { now: () => new Date(1000), monotonic: () => clock.ms };
    return { store, clock, queue: createMailQueue({ store, keyring, transport, logger, ...times, random: () => 1 }) };
  }

  test("sends a sealed mail, and finishes it only then", async () => {
    const sent: Mail[] = [];
    const { store, queue } = await openQueue(async (_, sending) => void sent.push(sending));
    const { id, sealed } = queue.seal(mail);
    expect(Buffer.from(sealed).includes(token)).toBe(false);
    store.due.push({ id, sealed, attempts: 0 });
    queue.wake();
    await until(() => expect(store.log).not.toEqual([]));
    expect(sent).toEqual([mail]);
    expect(store.log).toEqual([`finished ${id}`]);
    await queue.stop();
  });

  test("tries again later what could not be sent, and says so in its state until that time is over", async () => {
    const { store, queue, clock } = await openQueue(async () => {
      throw new Error("the server is down");
    });
    const { id, sealed } = queue.seal(mail);
    store.due.push({ id, sealed, attempts: 1 });
    queue.start();
    await until(() => expect(store.log).not.toEqual([]));
    expect(store.log).toEqual([`postponed ${id} to 11000`]);
    expect(queue.state()).toBe("the server is down");
    clock.ms += 659_999;
    expect(queue.state()).toBe("the server is down");
    clock.ms += 1;
    expect(queue.state()).toBe("ok");
    await queue.stop();
  });

  test.each([
    [550, true, "finished"],
    [451, false, "postponed"],
  ])("a recipient that is refused with %s is no failure of the server", async (code, isPermanent, done) => {
    const { store, queue } = await openQueue(async () => {
      throw new RecipientRefused(code, { isPermanent, cause: undefined });
    });
    const { id, sealed } = queue.seal(mail);
    store.due.push({ id, sealed, attempts: 1 });
    queue.wake();
    await until(() => expect(store.log).toEqual([expect.stringContaining(`${done} ${id}`)]));
    expect(queue.state()).toBe("ok");
    await queue.stop();
  });

  test("stops once the mails that are being sent are done", async () => {
    const sending = Promise.withResolvers<void>();
    const { store, queue } = await openQueue(() => sending.promise);
    store.due.push({ ...queue.seal(mail), attempts: 0 });
    queue.wake();
    const stopped = queue.stop();
    sending.resolve();
    await stopped;
    expect(store.log).toHaveLength(1);
    store.due.push({ ...queue.seal(mail), attempts: 0 });
    queue.wake();
    await queue.stop();
    expect(store.due).toHaveLength(1);
  });
});
