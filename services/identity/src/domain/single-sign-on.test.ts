import { isUuid } from "@sandgate/kit/base/ids";
import { describe, expect, test } from "vitest";
import { decideExternalUser, decideUnlink, type FirstSignIn, identityId, isLinkGuarded } from "./single-sign-on.ts";

const now = new Date(0);
const name = { username: "Ann@example.com", usernameKey: "ann@example.com" };
const identity = { issuer: "https://issuer.test", subject: "1", provider: "google", name, verified: true };
const noticeMail = { id: "mail", sealed: new Uint8Array([1]) };
const event = (subject: string) => ({ id: subject, subject, bytes: new Uint8Array() });
const first: FirstSignIn = {
  created: { id: "new", events: [event("created")] },
  holder: { id: "ann", events: [event("linked")], noticeMail },
  address: "192.0.2.1",
};

describe("an account at a provider", () => {
  test("signs in the user it is linked to, whoever has its address now", () => {
    const state = { link: { userId: "bob", usernameKey: "bob@example.com" }, holder: undefined };
    expect(decideExternalUser(state, identity, first, now)).toEqual({ userId: "bob" });
    expect(decideExternalUser(state, { ...identity, name: undefined }, first, now)).toEqual({ userId: "bob" });
  });

  test("signs nobody in while the provider hasn't verified an address that has changed", () => {
    const unverified = { ...identity, verified: false };
    const linkedWith = (usernameKey: string) => ({ link: { userId: "ann", usernameKey }, holder: undefined });
    expect(decideExternalUser(linkedWith("old@example.com"), unverified, first, now)).toBe("email_not_verified");
    expect(decideExternalUser(linkedWith(name.usernameKey), unverified, first, now)).toEqual({ userId: "ann" });
  });

  test("is linked to no one without a verified address", () => {
    const state = { link: undefined, holder: undefined };
    expect(decideExternalUser(state, { ...identity, name: undefined }, first, now)).toBe("email_not_verified");
    expect(decideExternalUser(state, { ...identity, verified: false }, first, now)).toBe("email_not_verified");
  });

  test("is linked to the user of its address, who loses what was set before the address was verified", () => {
    const state = (verified: boolean) => ({ link: undefined, holder: { id: "ann", verified, signedInAt: undefined } });
    const change = { userId: "ann", noticeMail, events: first.holder?.events };
    expect(decideExternalUser(state(true), identity, first, now)).toEqual({
      userId: "ann",
      change: { ...change, takesOver: false },
    });
    expect(decideExternalUser(state(false), identity, first, now)).toEqual({
      userId: "ann",
      change: { ...change, takesOver: true },
    });
  });

  test("is decided again when its address got another user meanwhile", () => {
    const state = { link: undefined, holder: { id: "eve", verified: true, signedInAt: undefined } };
    expect(decideExternalUser(state, identity, first, now)).toBe("changed");
    expect(decideExternalUser(state, identity, { ...first, holder: undefined }, now)).toBe("changed");
  });

  test("creates a verified user without a password, unless registration is closed", () => {
    const state = { link: undefined, holder: undefined };
    const created = { ...name, id: "new", passwordHash: undefined, verifiedAt: now, operator: false, createdAt: now };
    expect(decideExternalUser(state, identity, first, now)).toEqual({
      userId: "new",
      change: { userId: "new", created, takesOver: false, events: first.created?.events },
    });
    expect(decideExternalUser(state, identity, { ...first, created: undefined }, now)).toBe("unknown");
  });
});

describe("a link to a guarded user", () => {
  test("needs a recent sign-in of that user, from the network of the browser", () => {
    const linkedAfter = (...signedInAt: string[]) => {
      const state = { link: undefined, holder: { id: "ann", verified: true, signedInAt } };
      return decideExternalUser(state, identity, first, now);
    };
    for (const elsewhere of [[], ["198.51.100.1"], ["192.0.2.2", ""]]) {
      expect(linkedAfter(...elsewhere)).toBe("sign_in_needed");
    }
    expect(linkedAfter("198.51.100.1", "192.0.2.1")).toMatchObject({ userId: "ann", change: { takesOver: false } });
  });

  test("is one to a user with a second factor, or who has removed it before", () => {
    expect(isLinkGuarded({ secondFactor: false, hasRemovedLink: false })).toBe(false);
    expect(isLinkGuarded({ secondFactor: true, hasRemovedLink: false })).toBe(true);
    expect(isLinkGuarded({ secondFactor: false, hasRemovedLink: true })).toBe(true);
  });
});

test("the last way to sign in can't be removed", () => {
  const user = (hasPassword: boolean, ...identityIds: string[]) => ({ hasPassword, identityIds });
  expect(decideUnlink(user(false, "a"), "a")).toBe("last");
  expect(decideUnlink(user(true, "a"), "a")).toBe("unlink");
  expect(decideUnlink(user(false, "a", "b"), "a")).toBe("unlink");
  expect(decideUnlink(user(true, "b"), "a")).toBe("unknown");
});

test("a link's id is a UUID that the account at the provider alone decides", () => {
  const id = identityId("https://issuer.test", "1");
  expect(isUuid(id)).toBe(true);
  expect(identityId("https://issuer.test", "1")).toBe(id);
  expect(new Set([id, identityId("https://issuer.test", "2"), identityId("https://other.test", "1")]).size).toBe(3);
});
