import type { App } from "../pipeline/base/app.ts";
import type { RouteContext } from "../pipeline/route.ts";
import { createControl } from "./control.ts";
import { addLifeRoutes } from "./control-life.ts";
import { addReadRoutes } from "./control-reads.ts";
import { sayControlError } from "./errors.ts";
import { addMissingRoutes } from "./missing.ts";
import type { Names } from "./names.ts";
import type { Places } from "./places.ts";

/** E2B's control plane: creation, life and lists of sandboxes, for API tokens in the header X-API-Key. */
export async function controlPlane(
  app: App,
  context: RouteContext & { domain: string; isPublic: boolean; names: Names; places: Places },
): Promise<void> {
  app.addHook("onRequest", (request, _reply, done) => {
    const token = toApiToken(request.headers["x-api-key"]);
    if (token === undefined) delete request.headers.authorization;
    else request.headers.authorization = `Bearer ${token}`;
    done();
  });
  app.addHook("preValidation", async (request) => {
    const workspaceId = request.signedIn && (await context.places.ofCaller(request));
    if (workspaceId !== undefined) request.headers["x-workspace-id"] = workspaceId;
  });
  const control = createControl(context);
  addLifeRoutes(app, control);
  addReadRoutes(app, control);
  addMissingRoutes(app, sayControlError);
}

/** How API tokens begin. */
const tokenPrefix = "sgt_";
/** A token in the form that all of E2B's SDKs take for a key: this prefix, and its bytes in lower-case hex. */
const hexKey = /^e2b_((?:[0-9a-f]{2})+)$/;

/** The API token that a key is. Undefined: it is none, such as a session's token. */
function toApiToken(key: string | string[] | undefined): string | undefined {
  if (typeof key !== "string") return undefined;
  const hex = hexKey.exec(key)?.[1];
  const token = hex === undefined ? key : Buffer.from(hex, "hex").toString("latin1");
  return token.startsWith(tokenPrefix) && /^[\x21-\x7e]+$/.test(token) ? token : undefined;
}
