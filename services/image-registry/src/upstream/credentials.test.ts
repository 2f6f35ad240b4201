import { RegistryError, type RegistryProblem } from "@sandgate/registry-client/registry-client";
import { expect, test } from "vitest";
import { tryCredential } from "./credentials.ts";

const address = { host: "ghcr.io", scheme: "https" } as const;
const ann = { username: "ann", password: "secret" };
const { signal } = new AbortController();

const about = (field: string) => ({ reason: "VALIDATION_ERROR", violations: [expect.objectContaining({ field })] });

test.each<[RegistryProblem, object]>([
  ["unauthorized", about("password")],
  ["refused_address", about("url")],
  ["not_found", about("url")],
  ["rate_limited", { reason: "UPSTREAM_ERROR", callersFault: true, retryAfterSeconds: 7 }],
  ["unreachable", { reason: "UPSTREAM_ERROR", callersFault: true }],
])("a credential is refused where the registry's answer is %s", async (problem, refusal) => {
  async function checkCredential() {
    throw new RegistryError(problem, "no", problem === "rate_limited" ? { retryAfterSeconds: 7 } : {});
  }
  await expect(tryCredential({ checkCredential }, address, ann, signal)).rejects.toMatchObject(refusal);
});
