import { createServer } from "node:http";
import { join } from "node:path";
import { openFacade, readFacadeSettings } from "@sandgate/facade";
import { identityService } from "@sandgate/identity";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { createInMemoryNetwork } from "@sandgate/kit/rpc/clients";
import { openKeyring } from "@sandgate/kit/storage/sealing";
import { findFreePort } from "@sandgate/test-support/process";
import { until } from "@sandgate/test-support/until";
import { readMails, tokenIn } from "../platform/mails.ts";

/** The parts of the platform that a browser meets, and an application beside it. */
export interface BrowserPlatform {
  url: string;
  /**
   * The application. Its page shows what is in its address's fragment, and `/` has a link for each path that was given.
   */
  appUrl: string;
  /** The tokens in the links of the mails so far, the oldest first, once there are that many. */
  mailedTokens(count: number): Promise<string[]>;
  call(path: string, body: unknown): Promise<Response>;
  close(): Promise<void>;
}

/** `links` are paths of the platform that the application's first page links to. */
export async function openBrowserPlatform(o: {
  folder: string;
  /** Chosen before, since providers have to know the address. */
  port: number;
  settings?: NodeJS.ProcessEnv;
  links?: readonly string[];
}): Promise<BrowserPlatform> {
  const { folder } = o;
  const url = `http://127.0.0.1:${o.port}`;
  const appPort = await findFreePort();
  const appUrl = `http://127.0.0.1:${appPort}`;
  const env = {
    SANDGATE_DATA: folder,
    SANDGATE_PORT: String(o.port),
    SANDGATE_PUBLIC_URL: url,
    SANDGATE_REDIRECT_URIS: `${appUrl}/done`,
    SANDGATE_SIGNIN_RATE_LIMIT: "0",
    SANDGATE_DASHBOARD: "off",
    ...o.settings,
  };
  const logger = createLogger({ service: "test", level: "silent" });
  const metrics = createMetrics();
  const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics });
  const network = await createInMemoryNetwork();
  const identity = await identityService.open(
    {
      database: { kind: "sqlite", file: join(folder, "identity.sqlite") },
      bus,
      transport: (name) => network.transport("identity", name),
      keyring: await openKeyring({ file: join(folder, "keys.json"), create: true }),
      logger,
      metrics,
    },
    identityService.readSettings(env),
  );
  network.serve("identity", { routes: identity.routes, logger, metrics });
  await identity.start();
  const facade = await openFacade(
    { transport: (service) => network.transport("facade", service), bus, logger, metrics },
    readFacadeSettings(env),
  );
  await facade.listen();

  const links = (o.links ?? []).map((path) => `<p><a href="${url}${path}">${path}</a></p>`).join("");
  const app = createServer((request, response) => {
    const isStart = request.url === "/";
    response.setHeader("content-type", "text/html");
    response.end(
      isStart
        ? links
        : "<output></output><script>document.querySelector('output').textContent = location.hash</script>",
    );
  });
  app.listen(appPort, "127.0.0.1");

  return {
    url,
    appUrl,
    async mailedTokens(count) {
      return until(async () => {
        const tokens = (await readMails(join(folder, "mail"))).flatMap((mail) => tokenIn(mail) ?? []);
        if (tokens.length < count) throw new Error(`${tokens.length} of ${count} mails`);
        return tokens;
      });
    },
    call: (path, body) =>
      fetch(`${url}${path}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      }),
    async close() {
      app.closeAllConnections();
      app.close();
      await facade.close();
      await identity.drain();
      await identity.close();
      await bus.close();
    },
  };
}
