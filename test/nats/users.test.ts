import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type JetStreamManager, jetstreamManager } from "@nats-io/jetstream";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import { serviceNames } from "@sandgate/kit/base/service-names";
import { findNatsServer, startNats, type TestNats } from "@sandgate/test-support/nats";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { eventOf, openBus } from "./notes.ts";

/** What the services consume. The accounts have to permit each new consumer. */
const consumers = [
  ["identity", "identity-memberships", "sandgate.workspace.member.added.v1"],
  ["workspace", "workspace-users", "sandgate.identity.user.deleted.v1"],
  ["workspace", "workspace-purges", "sandgate.*.workspace.workspace_purged.v1"],
  ["image-registry", "image-registry-purges", "sandgate.workspace.workspace.deleted.v1"],
  ["sandbox", "sandbox-users", "sandgate.identity.user.disabled.v1"],
  ["sandbox", "sandbox-charges", "sandgate.workspace.workspace.taken_over.v1"],
  ["sandbox", "sandbox-previews", "sandgate.workspace.member.removed.v1"],
  ["sandbox", "sandbox-purges", "sandgate.workspace.workspace.deleted.v1"],
  ["telemetry", "telemetry-purges", "sandgate.workspace.workspace.deleted.v1"],
  ["telemetry", "telemetry-audit", "sandgate.identity.*.*.v1"],
  ["telemetry", "telemetry-audit", "sandgate.workspace.*.*.v1"],
  ["telemetry", "telemetry-audit", "sandgate.image-registry.*.*.v1"],
  ["telemetry", "telemetry-audit", "sandgate.sandbox.sandbox.provisioned.v1"],
  ["telemetry", "telemetry-audit", "sandgate.sandbox.sandbox.extended.v1"],
  ["telemetry", "telemetry-audit", "sandgate.sandbox.sandbox.stop_requested.v1"],
  ["telemetry", "telemetry-audit", "sandgate.sandbox.sandbox.used.v1"],
  ["telemetry", "telemetry-audit", "sandgate.sandbox.sandbox.preview_created.v1"],
  ["telemetry", "telemetry-audit", "sandgate.sandbox.sandbox.preview_revoked.v1"],
  ["telemetry", "telemetry-audit", "sandgate.sandbox.sandbox.preview_link_created.v1"],
] as const;

const subjectOf = (service: string) => `sandgate.${service}.thing.changed.v1`;
const passwordOf = (user: string) => `secret-of-${user}`;

describe.runIf(await requireServer("nats", findNatsServer))("the users of deploy/nats", () => {
  let server: TestNats;
  const open: { close(): Promise<void> }[] = [];

  beforeAll(async () => {
    const users = [...serviceNames, "facade", "operator"];
    const names = users.map((user) => `SANDGATE_NATS_${user.toUpperCase().replaceAll("-", "_")}_PASSWORD`);
    server = await startNats({
      config: await readFile(join(import.meta.dirname, "../../deploy/nats/accounts.conf"), "utf8"),
      env: Object.fromEntries(names.map((name, index) => [name, passwordOf(users[index] ?? "")])),
    });
  });
  afterAll(async () => {
    await Promise.all(open.map((each) => each.close()));
    await server.stop();
  });

  const openBusAs = async (service: string) => {
    const bus = await openBus({ url: server.url.replace("//", `//${service}:${passwordOf(service)}@`), service });
    open.push(bus);
    return bus;
  };
  const connectAs = async (user: string): Promise<{ connection: NatsConnection; jsm: JetStreamManager }> => {
    const inboxPrefix = user === "operator" ? "_INBOX" : `_INBOX_${user}`;
    const connection = await connect({ servers: server.url, user, pass: passwordOf(user), inboxPrefix });
    open.push(connection);
    return { connection, jsm: await jetstreamManager(connection, { checkAPI: false }) };
  };

  test.each(serviceNames)("%s publishes its own events and no other's", async (service) => {
    const bus = await openBusAs(service);
    await bus.publish([eventOf("a", subjectOf(service))]);
    for (const other of serviceNames.filter((name) => name !== service)) {
      await expect(bus.publish([eventOf("a", subjectOf(other))])).rejects.toThrow(/permissions violation/i);
    }
    expect(await bus.identity()).not.toBe("");
    expect(await bus.deadLetters.list({ limit: 10 })).toEqual([]);
  });

  test("the facade publishes no events, reads the state of NATS and receives the signals of services", async () => {
    const facade = await openBusAs("facade");
    const identity = await openBusAs("identity");
    await expect(facade.publish([eventOf("a", subjectOf("identity"))])).rejects.toThrow(/permissions violation/i);
    expect(await facade.identity()).toBe(await identity.identity());
    const heard: string[] = [];
    facade.watch("identity.sessions.ended", (session) => heard.push(session));
    facade.signal("identity.sessions.ended", "forged");
    await until(() => {
      identity.signal("identity.sessions.ended", "ended");
      expect(heard).toContain("ended");
    });
    expect(heard).not.toContain("forged");
  });

  test.each(consumers)(
    "%s reads through %s, and keeps, replays and drops what fails",
    async (service, consumer, pattern) => {
      const bus = await openBusAs(service);
      const subject = pattern.replace("*", "sandbox");
      const sender = await openBusAs(subject.split(".")[1] ?? "");
      const seen: string[] = [];
      const poison = [`poison for ${consumer}`, `more poison for ${consumer}`];
      let isBroken = true;
      const consumption = await bus.consume({
        consumer,
        subjects: [pattern],
        handle: async ({ entityId }) => {
          if (isBroken && poison.includes(entityId)) throw new Error("poison");
          seen.push(entityId);
        },
      });
      await sender.publish([`good for ${consumer}`, ...poison].map((entity) => eventOf(entity, subject)));
      await until(() => expect(seen).toContain(`good for ${consumer}`));
      const listDeadLetters = async () =>
        (await bus.deadLetters.list({ limit: 100 })).filter(
          (letter) => letter.consumer === consumer && poison.includes(letter.event.entityId),
        );
      await until(async () => expect(await listDeadLetters()).toHaveLength(2));
      const [replayed, dropped] = await listDeadLetters();
      isBroken = false;
      expect(await bus.deadLetters.replay(replayed?.id ?? "")).toBe(true);
      expect(seen).toContain(replayed?.event.entityId);
      expect(await bus.deadLetters.drop(dropped?.id ?? "")).toBe(true);
      expect(await listDeadLetters()).toEqual([]);
      await consumption.stop();
    },
  );

  test("a service can change no stream, create no other consumer and read no other's replies", async () => {
    const { connection, jsm } = await connectAs("sandbox");
    const refused = (work: Promise<unknown>) => expect(work).rejects.toThrow(/permissions violation/i);
    await refused(jsm.streams.update("SANDGATE", { max_age: 1_000_000_000 }));
    await refused(jsm.streams.purge("SANDGATE"));
    await refused(jsm.streams.delete("SANDGATE"));
    await refused(jsm.streams.delete("SANDGATE_PARKED"));
    await refused(jsm.streams.getMessage("SANDGATE", { seq: 1 }));
    await refused(jsm.streams.deleteMessage("SANDGATE", 1));
    await refused(jsm.streams.purge("SANDGATE_PARKED"));
    await refused(jsm.streams.getMessage("SANDGATE_PARKED", { seq: 1 }));
    await refused(jsm.streams.add({ name: "OWN", subjects: ["own.>"] }));
    await refused(jsm.consumers.add("SANDGATE", { durable_name: "own", filter_subject: "sandgate.>" }));
    const ownName = "sandbox-purges~sandgate~workspace~workspace~deleted~v1";
    await refused(jsm.consumers.add("SANDGATE", { durable_name: ownName, filter_subject: "sandgate.>" }));
    const theirs = "workspace-users~sandgate~identity~user~deleted~v1";
    await refused(jsm.consumers.delete("SANDGATE", theirs));
    for (const subject of ["sandgate.>", "_INBOX_workspace.>", "$JS.>", ">"]) {
      const failure = Promise.withResolvers<Error>();
      connection.subscribe(subject, { callback: (error) => failure.resolve(error ?? new Error("got a message")) });
      expect((await failure.promise).message).toMatch(/permissions violation/i);
    }
  });

  test("a wrong password is refused at once; an operator changes streams", async () => {
    await expect(openBus({ url: server.url.replace("//", "//sandbox:wrong@"), service: "sandbox" })).rejects.toThrow(
      "NATS refuses the credentials",
    );
    const { jsm } = await connectAs("operator");
    const info = await jsm.streams.update("SANDGATE", { description: "changed" });
    expect(info.config.description).toBe("changed");
  });

  test("a handshake that times out is no refusal, and is tried again", async () => {
    const hasty = ", timeout: 0.000001";
    const strict = await startNats({ config: `authorization { user: sandbox, password: secret${hasty} }` });
    try {
      const opening = openBus({ url: strict.url.replace("//", "//sandbox:secret@"), service: "sandbox" });
      opening.catch(() => undefined);
      await delay(500);
      const file = join(dirname(strict.storageFolder), "nats.conf");
      await writeFile(file, (await readFile(file, "utf8")).replace(hasty, ""));
      await strict.kill();
      await strict.start();
      await (await opening).close();
    } finally {
      await strict.stop();
    }
  });
});
