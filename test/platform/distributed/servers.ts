import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { startReplicaSet, type TestReplicaSet } from "@sandgate/test-support/mongo";
import { startNats, type TestNats } from "@sandgate/test-support/nats";
import { type Part, parts } from "./replica.ts";
import { toVariable } from "./settings.ts";

const accountsFile = join(import.meta.dirname, "../../../deploy/nats/accounts.conf");

/** The servers that a platform stands on, its own. */
export interface Servers extends AsyncDisposable {
  mongo: TestReplicaSet;
  nats: TestNats;
  /** The address of NATS with a user of deploy/nats and its password. */
  natsUrl(user: Part | "operator"): string;
}

/** Starts a MongoDB replica set with this many members, and a nats-server with the accounts of deploy/nats. */
export async function startServers(members: number): Promise<Servers> {
  await using starting = new AsyncDisposableStack();
  const passwords = new Map(
    [...parts, "operator" as const].map((user) => [user, `p${randomBytes(12).toString("hex")}`]),
  );
  const [mongo, nats] = await Promise.all([
    startReplicaSet({ members }).then((set) => starting.adopt(set, (each) => each.stop())),
    startNats({
      config: await readFile(accountsFile, "utf8"),
      env: Object.fromEntries(
        [...passwords].map(([user, password]) => [`SANDGATE_NATS_${toVariable(user)}_PASSWORD`, password]),
      ),
    }).then((server) => starting.adopt(server, (each) => each.stop())),
  ]);
  const started = starting.move();
  return {
    mongo,
    nats,
    natsUrl: (user) => nats.url.replace("//", `//${user}:${passwords.get(user)}@`),
    [Symbol.asyncDispose]: () => started.disposeAsync(),
  };
}
