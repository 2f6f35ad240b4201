import { dayMs } from "@sandgate/kit/base/time";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { at, mail, registration } from "./store.fixture.ts";
import type { IdentityStore } from "./store.ts";

/** What every adapter of `Mails` does. `open` returns an empty store. */
export function describeMails(open: () => Promise<IdentityStore>): void {
  describe("mails", () => {
    let store: IdentityStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    test("a mail that was taken is due again when its lease is over, until it is finished", async () => {
      await store.registrations.register(registration("ann@example.com"));
      expect(await store.mails.takeDue(at(-1), at(0), 10)).toEqual([]);
      const [taken] = await store.mails.takeDue(at(0), at(1000), 10);
      expect(taken?.attempts).toBe(0);
      expect(await store.mails.takeDue(at(999), at(2000), 10)).toEqual([]);
      expect(await store.mails.takeDue(at(1000), at(2000), 10)).toMatchObject([{ attempts: 1 }]);
      await store.mails.postpone(taken?.id ?? "", at(5000));
      expect(await store.mails.takeDue(at(4999), at(9000), 10)).toEqual([]);
      expect(await store.mails.takeDue(at(5000), at(9000), 10)).toMatchObject([{ attempts: 2 }]);
      await store.mails.finish(taken?.id ?? "");
      expect(await store.mails.takeDue(at(dayMs), at(dayMs), 10)).toEqual([]);
    });

    test("a mail that is added several times, also at once and once it was sent, is sent once", async () => {
      const { id, sealed } = mail("added");
      await Promise.all([1, 2, 3].map(() => store.mails.add("ann", { id, sealed }, at(0))));
      expect(await store.mails.takeDue(at(0), at(1000), 10)).toEqual([{ id, sealed, attempts: 0 }]);
      await store.mails.finish(id);
      await store.mails.add("ann", { id, sealed }, at(1));
      expect(await store.mails.takeDue(at(dayMs), at(dayMs), 10)).toEqual([]);
    });
  });
}
