import { DomainError } from "@sandgate/kit/errors";
import type { App, RouteContext } from "../route.ts";
import type { RouteRules } from "../route-rules.ts";
import { Alive, Ready } from "../schemas.ts";

const tags = ["Health"];
const rules: RouteRules = { credential: "none", limit: "uncounted" };
/** More than each of them takes to be told of as out of order. */
const patienceMs = 2_000;

export function addHealthRoutes(
  app: App,
  { openCalls }: RouteContext,
  dependencies: () => Promise<Record<string, string>>,
): void {
  app.get(
    "/healthz",
    { config: { rules }, schema: { tags, summary: "Whether the process is alive", response: { 200: Alive } } },
    async () => ({ status: "ok" }),
  );

  app.get(
    "/readyz",
    {
      config: { rules },
      schema: {
        tags,
        summary: "Whether the process takes requests",
        description: "The state of what it depends on is told beside, and doesn't make it unready.",
        response: { 200: Ready },
      },
    },
    async () => {
      if (openCalls.draining) throw new DomainError("DRAINING", "The server is shutting down.");
      return { status: "ready", dependencies: await askWithPatience(dependencies) };
    },
  );
}

async function askWithPatience(dependencies: () => Promise<Record<string, string>>): Promise<Record<string, string>> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Record<string, string>>((resolve) => {
    timer = setTimeout(() => resolve({ dependencies: "did not answer in time" }), patienceMs);
  });
  try {
    return await Promise.race([dependencies(), late]);
  } catch (error) {
    return { dependencies: error instanceof Error ? error.message : "could not be asked" };
  } finally {
    clearTimeout(timer);
  }
}
