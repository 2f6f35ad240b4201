import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { addMs, dayMs, hourMs } from "@sandgate/kit/base/time";
import { test as base } from "@sandgate/test-support/test";
import { expect } from "vitest";
import type { Mail } from "../mail/texts.ts";
import { createUser } from "../store/store.fixture.ts";
import { openSqliteStore } from "../store/store.sqlite.ts";
import { type Addition, createMembershipNotices } from "./membership-notices.ts";

const logger = createLogger({ service: "identity", level: "silent" });

/** `add` tells that ann was added, and `mails` are those to ann so far. */
const test = base.extend("notices", async ({ folder }, { onCleanup }) => {
  const store = await openSqliteStore({ file: join(folder, "identity.sqlite"), logger });
  onCleanup(() => store.close());
  const clock = { now: new Date(Date.UTC(2026, 0, 1)) };
  const [ann, bob] = [await createUser(store), await createUser(store, "bob@example.com")];
  const sealed: Mail[] = [];
  const notice = createMembershipNotices({
    store,
    mails: {
      seal(mail, id = newId()) {
        sealed.push(mail);
        return { id, sealed: Buffer.from(JSON.stringify(mail)) };
      },
      wake: () => undefined,
    },
    publicUrl: "https://sandgate.example",
    now: () => clock.now,
  });
  return {
    ann,
    bob,
    clock,
    add: (o: Partial<Addition> = {}) =>
      notice({ id: newId(), at: clock.now, workspaceId: newId(), userId: ann, addedById: bob, ...o }),
    /** How many mails became due since it was last asked. */
    async countDue(): Promise<number> {
      const due = await store.mails.takeDue(addMs(clock.now, 1), new Date(Date.UTC(2200, 0)), 1_000);
      return due.filter(({ sealed }) => Buffer.from(sealed).includes("added you")).length;
    },
    sealed,
    /** What happens to a mail once it was sent: it is finished, and removed when its time is over. */
    async finishMail(id: string): Promise<void> {
      await store.mails.finish(id);
      while ((await store.expiry.sweep(clock.now, 1_000)) > 0);
    },
  };
});

test("an addition that is told of again, is old, or is of nobody, causes no other mail", async ({ notices }) => {
  const { add, countDue, clock } = notices;
  const id = newId();
  for (let time = 0; time < 3; time++) await add({ id });
  expect(await countDue()).toBe(1);
  await add({ userId: newId() });
  await add({ at: addMs(clock.now, -dayMs - 1) });
  expect(await countDue()).toBe(0);
  await add({ at: addMs(clock.now, -dayMs) });
  expect(await countDue()).toBe(1);
});

test("an addition whose mail was sent causes no other, however late it is told of again", async ({ notices }) => {
  const { add, countDue, finishMail, clock } = notices;
  const [id, at] = [newId(), clock.now];
  await add({ id, at });
  expect(await countDue()).toBe(1);
  for (let hours = 1; hours <= 48; hours++) {
    clock.now = addMs(at, hours * hourMs);
    await finishMail(id);
    await add({ id, at });
    expect(await countDue()).toBe(0);
  }
});

test("who did it is named, unless it is nobody any more", async ({ notices }) => {
  await notices.add();
  await notices.add({ addedById: undefined });
  const [first = "", second = ""] = notices.sealed.map(({ text }) => text.split("\n")[0]);
  expect([first, second]).toEqual([
    "bob@example.com added you to the workspace",
    "Another user added you to the workspace",
  ]);
});

test("nobody is flooded, by one or by many, and nobody floods many", async ({ notices }) => {
  const { add, countDue, clock, ann, bob } = notices;
  for (let i = 0; i < 10; i++) await add({ addedById: i % 2 === 0 ? bob : newId() });
  expect(await countDue()).toBe(5);
  clock.now = addMs(clock.now, hourMs);
  await add({ userId: bob, addedById: ann });
  await add();
  expect(await countDue()).toBe(2);
});
