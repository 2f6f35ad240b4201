import { describe, expect, test } from "vitest";
import { decideExternalUser, type FirstSignIn } from "./single-sign-on.ts";

const now = new Date(0);
const name = { username: "Ann@example.com", usernameKey: "ann@example.com" };
const identity = { issuer: "https://issuer.test", subject: "1", name };
const noticeMail = { id: "mail", sealed: new Uint8Array([1]) };
const event = (subject: string) => ({ id: subject, subject, bytes: new Uint8Array() });
const first: FirstSignIn = {
  created: { id: "new", events: [event("created")] },
  holder: { id: "ann", events: [event("linked")], noticeMail },
};

describe("an account at a provider", () => {
  test("signs in the user it is linked to, whoever has its address now", () => {
    const state = { linkedUserId: "bob", holder: { id: "ann", verified: true } };
    expect(decideExternalUser(state, identity, first, now)).toEqual({ userId: "bob" });
    expect(decideExternalUser(state, { ...identity, name: undefined }, first, now)).toEqual({ userId: "bob" });
  });

  test("is linked to no one without a verified address", () => {
    const state = { linkedUserId: undefined, holder: undefined };
    expect(decideExternalUser(state, { ...identity, name: undefined }, first, now)).toBe("email_not_verified");
  });

  test("is linked to the user of its address, who loses what was set before the address was verified", () => {
    const state = (verified: boolean) => ({ linkedUserId: undefined, holder: { id: "ann", verified } });
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
    const state = { linkedUserId: undefined, holder: { id: "eve", verified: true } };
    expect(decideExternalUser(state, identity, first, now)).toBe("changed");
    expect(decideExternalUser(state, identity, { ...first, holder: undefined }, now)).toBe("changed");
  });

  test("creates a verified user without a password, unless registration is closed", () => {
    const state = { linkedUserId: undefined, holder: undefined };
    const created = { ...name, id: "new", passwordHash: undefined, verifiedAt: now, operator: false, createdAt: now };
    expect(decideExternalUser(state, identity, first, now)).toEqual({
      userId: "new",
      change: { userId: "new", created, takesOver: false, events: first.created?.events },
    });
    expect(decideExternalUser(state, identity, { ...first, created: undefined }, now)).toBe("unknown");
  });
});
