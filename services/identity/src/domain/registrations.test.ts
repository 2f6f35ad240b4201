import { describe, expect, test } from "vitest";
import { decideRegistration, isAbandoned } from "./registrations.ts";

const mail = { id: "mail", sealed: new Uint8Array([1]) };
const verification = { tokenHash: new Uint8Array([2]), expiresAt: new Date(1), mail };
const user = {
  id: "new",
  username: "Ann@example.com",
  usernameKey: "ann@example.com",
  passwordHash: "hash",
  createdAt: new Date(0),
};
const events = [{ id: "event", subject: "created", bytes: new Uint8Array() }];
const registration = { ...user, mails: { verification, notice: mail }, events };

describe("a registration", () => {
  test("of a free name creates an unverified user, with a link and the events", () => {
    expect(decideRegistration(undefined, registration)).toEqual({
      outcome: "created",
      userId: "new",
      created: { ...user, verifiedAt: undefined, operator: false },
      verification,
      events,
    });
  });

  test("of an unverified user's name adds a link to that user, and publishes nothing", () => {
    const decided = decideRegistration({ id: "ann", verified: false }, registration);
    expect(decided).toEqual({ outcome: "renewed", userId: "ann", verification, events: [] });
  });

  test("of a verified user's name sends that user a notice alone", () => {
    const decided = decideRegistration({ id: "ann", verified: true }, registration);
    expect(decided).toEqual({ outcome: "taken", userId: "ann", notice: mail, events: [] });
  });

  test("without mails has the same outcome, and sends nothing", () => {
    const silent = { ...registration, mails: undefined };
    expect(decideRegistration(undefined, silent).verification).toBeUndefined();
    expect(decideRegistration({ id: "ann", verified: false }, silent).verification).toBeUndefined();
    expect(decideRegistration({ id: "ann", verified: true }, silent).notice).toBeUndefined();
  });
});

test("an account is abandoned once it is unverified and has no link that works", () => {
  expect(isAbandoned({ verified: false }, false)).toBe(true);
  expect(isAbandoned({ verified: false }, true)).toBe(false);
  expect(isAbandoned({ verified: true }, false)).toBe(false);
});
