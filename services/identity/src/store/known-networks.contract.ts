import { newId } from "@sandgate/kit/base/ids";
import { dayMs } from "@sandgate/kit/base/time";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { usernameKey } from "../domain/users.ts";
import { at } from "./store.fixture.ts";
import type { IdentityStore } from "./store.ts";

/** What every adapter of `KnownNetworks` does. `open` returns an empty store. */
export function describeKnownNetworks(open: () => Promise<IdentityStore>): void {
  describe("networks that users signed in from", () => {
    let store: IdentityStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    const bytes = (fill: number) => new Uint8Array(32).fill(fill);
    test("are known to their user alone, for 90 days after the last time", async () => {
      const isKnown = (userId: string, fill: number, ms: number) =>
        store.knownNetworks.has(userId, bytes(fill), at(ms));
      await store.knownNetworks.add("ann", bytes(1), at(0));
      expect(await isKnown("ann", 1, 0)).toBe(true);
      expect(await isKnown("ann", 2, 0)).toBe(false);
      expect(await isKnown("bob", 1, 0)).toBe(false);
      await store.knownNetworks.add("ann", bytes(1), at(dayMs));
      expect(await isKnown("ann", 1, 91 * dayMs - 1)).toBe(true);
      expect(await isKnown("ann", 1, 91 * dayMs)).toBe(false);
    });

    test("are forgotten with the password and with the user", async () => {
      const username = "ann@example.com";
      const ann = { id: newId(), username, usernameKey: usernameKey(username), passwordHash: "hash", events: [] };
      const link = { tokenHash: bytes(9), expiresAt: at(dayMs), mail: { id: newId(), sealed: bytes(0) } };
      await store.registrations.register({
        ...ann,
        createdAt: at(0),
        mails: { verification: link, notice: link.mail },
      });
      await store.knownNetworks.add(ann.id, bytes(1), at(0));
      await store.registrations.verify(link.tokenHash, "hash", at(0), []);
      expect(await store.knownNetworks.has(ann.id, bytes(1), at(0))).toBe(false);
      await store.knownNetworks.add(ann.id, bytes(1), at(0));
      await store.users.delete(ann.id, [], at(0));
      expect(await store.knownNetworks.has(ann.id, bytes(1), at(0))).toBe(false);
    });
  });
}
