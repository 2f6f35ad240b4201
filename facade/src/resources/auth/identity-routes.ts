import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { callFor } from "../../pipeline/base/request-context.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { NoContent } from "../../pipeline/validation/common-schemas.ts";
import { identityIdOf, toIdentity } from "./mapping.ts";
import { IdentityList, IdentityParams } from "./schemas.ts";

const { method: rpc } = IdentityService;
const tags = ["Accounts"];

/** The accounts at providers that sign in to the user's. */
export const identityRoutes: RoutePlugin = async (app, { clients: { identity } }) => {
  app.get(
    "/auth/identities",
    {
      config: { rules: { rpc: rpc.listIdentities, audit: "identity.list" } },
      schema: {
        tags,
        summary: "List the accounts at providers that sign in to yours",
        description: "A first sign-in by a provider links the account there. The newest link comes first.",
        response: { 200: IdentityList },
      },
    },
    async (request) => {
      const { identities } = await identity.listIdentities({}, callFor(request));
      return { identities: identities.map(toIdentity) };
    },
  );

  app.delete(
    "/auth/identities/:identity_id",
    {
      config: { rules: { rpc: rpc.deleteIdentity, audit: "user.unlink", errors: ["NOT_FOUND", "CONFLICT"] } },
      schema: {
        tags,
        summary: "Remove the link to an account at a provider",
        description:
          "Ends your other sessions, and sends a mail about it. The link comes back only when that account signs in within 5 minutes after you did, on your network. Refused for the last way to sign in.",
        params: IdentityParams,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      await identity.deleteIdentity({ identityId: identityIdOf(request.params.identity_id) }, callFor(request));
      return reply.code(204).send(null);
    },
  );
};
