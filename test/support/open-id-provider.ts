import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { decodeJwt, exportJWK, generateKeyPair, type JWTPayload, SignJWT } from "jose";
import { type Adapter, type AdapterPayload, Provider } from "oidc-provider";
import { createCookieJar } from "./cookie-jar.ts";

/** A user of the provider. */
interface Account {
  sub: string;
  /** Claims such as `email` and `email_verified`. */
  [claim: string]: unknown;
}

/**
 * An OpenID Connect provider on the loopback address, with one client. What tests set counts for the sign-ins after it.
 */
export interface TestOpenIdProvider {
  issuer: string;
  clientId: string;
  clientSecret: string;
  /** Who signs in next. */
  account: Account;
  /** Whether the ID token has the account's claims; if not, the userinfo endpoint alone tells them. */
  claimsInIdToken: boolean;
  /** How long a code can be redeemed, in seconds. */
  codeSeconds: number;
  /** Changes the claims of ID tokens before they are signed. */
  changeIdToken: ((claims: JWTPayload) => JWTPayload) | undefined;
  /** Answers every request with this status, or none at all. */
  failure: number | "no answer" | undefined;
  /** The paths of the requests so far. */
  readonly requests: string[];
  /** Signs with a new key, and forgets the one before. */
  rotateKey(): Promise<void>;
  /**
   * What the user's browser does: opens the address, signs in or cancels, and is sent to the callback, whose address it
   * answers.
   */
  signIn(authorizationUrl: string, o?: { cancel?: boolean }): Promise<URL>;
  stop(): Promise<void>;
}

const algorithm = "RS256";

export async function startOpenIdProvider(o: { callbackUrl: string }): Promise<TestOpenIdProvider> {
  const client = { clientId: "sandgate", clientSecret: "a secret that only the two know" };
  const server = createServer((request, response) => void answer(request, response));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const requests: string[] = [];
  const records = new Map<string, AdapterPayload>();
  let keys = 0;
  let handle: ReturnType<Provider["callback"]>;
  let current: Provider;

  const provider: TestOpenIdProvider = {
    ...client,
    issuer,
    requests,
    account: { sub: "ann", email: "ann@example.com", email_verified: true },
    claimsInIdToken: true,
    codeSeconds: 60,
    changeIdToken: undefined,
    failure: undefined,
    rotateKey,
    signIn,
    stop: () => stopServer(server),
  };
  await rotateKey();
  return provider;

  async function rotateKey(): Promise<void> {
    const { privateKey } = await generateKeyPair(algorithm, { extractable: true });
    const kid = `key ${++keys}`;
    const key = { ...(await exportJWK(privateKey)), kid, alg: algorithm, use: "sig" };
    current = new Provider(issuer, {
      adapter: (model) => createAdapter(model, records),
      clients: [{ client_id: client.clientId, client_secret: client.clientSecret, redirect_uris: [o.callbackUrl] }],
      clientAuthMethods: ["client_secret_basic", "client_secret_post"],
      jwks: { keys: [key] },
      claims: { openid: ["sub"], email: ["email", "email_verified", "xms_edov", "tid"] },
      conformIdTokenClaims: !provider.claimsInIdToken,
      findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ ...provider.account, sub }) }),
      pkce: { required: () => true },
      cookies: { keys: ["for tests"] },
      ttl: {
        AuthorizationCode: () => provider.codeSeconds,
        AccessToken: 60,
        IdToken: 60,
        Session: 60,
        Grant: 60,
        Interaction: 60,
      },
      interactions: { url: (_, { uid }) => `/interaction/${uid}` },
      features: { devInteractions: { enabled: false } },
      async loadExistingGrant({ oidc }) {
        const grant = new oidc.provider.Grant({ accountId: oidc.session?.accountId, clientId: oidc.client?.clientId });
        grant.addOIDCScope("openid email");
        await grant.save();
        return grant;
      },
    });
    current.use(async (context, next) => {
      await next();
      const body: unknown = context.body;
      if (!provider.changeIdToken || typeof body !== "object" || body === null || !("id_token" in body)) return;
      const claims = provider.changeIdToken(decodeJwt(String(body.id_token)));
      const signed = new SignJWT(claims).setProtectedHeader({ alg: algorithm, kid }).sign(privateKey);
      context.body = { ...body, id_token: await signed };
    });
    handle = current.callback();
  }

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname } = new URL(request.url ?? "/", issuer);
    requests.push(pathname);
    if (provider.failure === "no answer") return;
    if (provider.failure !== undefined) return void response.writeHead(provider.failure).end("out of order");
    const interaction = /^\/interaction\/[^/]+(?:\/(?<choice>sign-in|cancel))?$/.exec(pathname);
    if (!interaction) return handle(request, response);
    const choice = interaction.groups?.choice;
    if (choice === undefined) return void response.setHeader("content-type", "text/html").end(signInPage(pathname));
    await current.interactionFinished(
      request,
      response,
      choice === "sign-in"
        ? { login: { accountId: provider.account.sub } }
        : { error: "access_denied", error_description: "The user has cancelled." },
    );
  }

  async function signIn(authorizationUrl: string, { cancel = false } = {}): Promise<URL> {
    const browser = createCookieJar();
    let location = authorizationUrl;
    while (!location.startsWith(o.callbackUrl)) {
      const isPage = location.startsWith(`${issuer}/interaction/`);
      const next = isPage ? `${location}/${cancel ? "cancel" : "sign-in"}` : location;
      const response = await browser.fetch(next, { method: isPage ? "POST" : "GET" });
      const target = response.headers.get("location");
      if (target === null) throw new Error(`${next}: ${response.status} ${await response.text()}`);
      location = new URL(target, issuer).href;
    }
    return new URL(location);
  }
}

/** Keeps the provider's records of one model. The provider itself looks whether they have expired. */
function createAdapter(model: string, records: Map<string, AdapterPayload>): Adapter {
  const keyOf = (id: string) => `${model} ${id}`;
  const ofModel = () => [...records].filter(([key]) => key.startsWith(`${model} `));
  return {
    async upsert(id, payload) {
      records.set(keyOf(id), payload);
    },
    find: async (id) => records.get(keyOf(id)),
    findByUid: async (uid) => ofModel().find(([, payload]) => payload.uid === uid)?.[1],
    findByUserCode: async () => undefined,
    async consume(id) {
      records.set(keyOf(id), { ...records.get(keyOf(id)), consumed: Math.floor(Date.now() / 1000) });
    },
    async destroy(id) {
      records.delete(keyOf(id));
    },
    async revokeByGrantId(grantId) {
      for (const [key, payload] of ofModel()) if (payload.grantId === grantId) records.delete(key);
    },
  };
}

/** The provider's own page, for tests with a real browser. */
function signInPage(path: string): string {
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>Provider</title><h1>Provider</h1>
<form method="post" action="${path}/sign-in"><button>Sign in</button></form>
<form method="post" action="${path}/cancel"><button>Cancel</button></form></html>`;
}

/** Ends open connections too, those without an answer among them. */
async function stopServer(server: Server): Promise<void> {
  server.closeAllConnections();
  server.close();
  await once(server, "close");
}
