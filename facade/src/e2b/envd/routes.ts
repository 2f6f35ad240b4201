import type { App } from "../../pipeline/base/app.ts";
import type { RouteRules } from "../../pipeline/base/route-rules.ts";
import type { RouteContext } from "../../pipeline/route.ts";
import { sayControlError } from "../errors.ts";
import { Filesystem } from "../gen/filesystem_pb.ts";
import { Process } from "../gen/process_pb.ts";
import { addUnknownRoute } from "../missing.ts";
import type { Names } from "../names.ts";
import type { Places } from "../places.ts";
import { createAccess } from "./access.ts";
import { addCallRoutes } from "./calls.ts";
import { addContentRoutes } from "./content-routes.ts";
import { createFileHandlers, fileRules } from "./files.ts";
import { createFolders } from "./folders.ts";
import { addHealthRoute } from "./health.ts";
import { createProcessHandlers, processRules } from "./processes.ts";

/** What E2B's envd answers in each of its sandboxes: commands, terminals and files, for access tokens. */
export async function envd(app: App, context: RouteContext & { names: Names; places: Places }): Promise<void> {
  const { clients } = context;
  const access = createAccess(context);
  const folders = createFolders(clients);
  app.decorateRequest("sandboxName", "");
  app.decorateRequest("sandboxId", "");
  app.addHook("onRequest", (request, _reply, done) => {
    const { "e2b-sandbox-id": name } = request.headers;
    request.sandboxName = typeof name === "string" ? name : "";
    // The key would be about something else than this request.
    delete request.headers["idempotency-key"];
    done();
  });
  const withAccess = (rules: Readonly<Record<string, RouteRules>>) =>
    Object.fromEntries(Object.entries(rules).map(([name, each]) => [name, { ...each, signIn: access.byToken }]));

  await app.register(async (calls: App) =>
    addCallRoutes(calls, context, {
      services(router) {
        router.service(Process, createProcessHandlers({ clients, folders }));
        router.service(Filesystem, createFileHandlers({ clients, folders }));
      },
      rulesOf: withAccess({ ...processRules, ...fileRules }),
    }),
  );
  await app.register(async (contents: App) =>
    addContentRoutes(contents, { ...context, folders }, access.byTokenOrSignature),
  );
  addHealthRoute(app, context, access.byToken);
  addUnknownRoute(app, sayControlError);
}
