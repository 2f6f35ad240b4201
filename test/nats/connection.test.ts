import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { nkeys } from "@nats-io/transport-node";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { connectNats, type NatsCredentials, type NatsLink } from "@sandgate/kit/events/bus.nats-connection";
import { findNatsServer, startNats, type TestNats } from "@sandgate/test-support/nats";
import { requireServer } from "@sandgate/test-support/require";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { afterAll, afterEach, beforeAll, describe, expect } from "vitest";

describe.runIf(await requireServer("nats", findNatsServer))("a connection to NATS", () => {
  const user = nkeys.createUser();
  const credentials = `-----BEGIN NATS USER JWT-----
a.b.c
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
${new TextDecoder().decode(user.getSeed())}
------END USER NKEY SEED------
`;
  let server: TestNats;
  let folder: string;
  let file: string;
  let lines: string[];
  let metrics: ReturnType<typeof createMetrics>;
  let links: NatsLink[];

  beforeAll(async () => {
    server = await startNats({ config: `authorization { users: [{ nkey: ${user.getPublicKey()} }] }` });
  });
  afterAll(() => server.stop());
  test.beforeEach(async ({ folder: own }) => {
    folder = own;
    file = join(folder, "user.creds");
    await writeFile(file, credentials);
    lines = [];
    metrics = createMetrics();
    links = [];
  });
  afterEach(async () => {
    await Promise.all(links.map((link) => link.close()));
  });

  const open = async (given: NatsCredentials): Promise<NatsLink> => {
    const logger = createLogger({ service: "test" }, { write: (line) => void lines.push(line) });
    const link = await connectNats({ url: server.url, credentials: given, service: "test", logger, metrics });
    links.push(link);
    return link;
  };
  const restart = async () => {
    await server.kill();
    await server.start();
  };

  test.each([
    ["missing", () => rm(file)],
    ["half written", () => writeFile(file, credentials.slice(0, credentials.length / 2))],
  ])("a credentials file that is %s ends no connection, but prevents new ones", async (_, spoil) => {
    const link = await open({ file });
    await spoil();
    await restart();
    await until(() => expect(lines.join()).toContain("the last ones are used"));
    await until(() => expect(link.isUp()).toBe(true));
    await link.connection.flush();
    await expect(open({ file })).rejects.toThrow(`the NATS credentials in ${file} can't be read`);
  });

  test("one that ends without being closed is logged, and the metric shows it", async () => {
    const link = await open({ file });
    await link.connection.close();
    await until(() => expect(lines.join()).toContain("ended for good"));
    expect(link.isUp()).toBe(false);
    expect(await metrics.metrics()).toContain("\nsandgate_bus_connected 0\n");
  });

  test("one that is closed ends quietly", async () => {
    const link = await open({ file });
    await link.close();
    expect(lines.join()).not.toContain("ended for good");
  });
});
