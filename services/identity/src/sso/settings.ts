import {
  defineSettings,
  flag,
  list,
  SettingsError,
  type SettingValues,
  secret,
  text,
} from "@sandgate/kit/base/settings";
import { isWebAddress } from "@sandgate/kit/base/web-addresses";

export const ssoSettings = defineSettings({
  redirectUris: list("SANDGATE_REDIRECT_URIS", {
    default: [],
    doc: "Addresses of applications. Single sign-on returns to one of them, by default the first. Browsers may call the API from their origins",
  }),
  googleClientId: text("SANDGATE_SSO_GOOGLE_CLIENT_ID", {
    optional: true,
    doc: "Client ID at Google. Together with the secret it enables sign-in with Google",
  }),
  googleClientSecret: secret("SANDGATE_SSO_GOOGLE_CLIENT_SECRET", { optional: true, doc: "Client secret at Google" }),
  googleIssuer: text("SANDGATE_SSO_GOOGLE_ISSUER", {
    default: "https://accounts.google.com",
    doc: "Issuer of Google's OpenID Connect, or of another provider to use instead",
  }),
  microsoftClientId: text("SANDGATE_SSO_MICROSOFT_CLIENT_ID", {
    optional: true,
    doc: "Client ID at Microsoft. Together with the secret it enables sign-in with Microsoft",
  }),
  microsoftClientSecret: secret("SANDGATE_SSO_MICROSOFT_CLIENT_SECRET", {
    optional: true,
    doc: "Client secret at Microsoft",
  }),
  microsoftIssuer: text("SANDGATE_SSO_MICROSOFT_ISSUER", {
    default: "https://login.microsoftonline.com/common/v2.0",
    doc: "Issuer of Microsoft's OpenID Connect. `common` accepts all tenants, a tenant's ID in its place that tenant alone",
  }),
  microsoftTrustEmail: flag("SANDGATE_SSO_MICROSOFT_TRUST_EMAIL", {
    default: false,
    doc: "Whether addresses count as verified without Microsoft's word. Only for the issuer of a single tenant, which sets them itself",
  }),
  githubClientId: text("SANDGATE_SSO_GITHUB_CLIENT_ID", {
    optional: true,
    doc: "Client ID at GitHub. Together with the secret it enables sign-in with GitHub",
  }),
  githubClientSecret: secret("SANDGATE_SSO_GITHUB_CLIENT_SECRET", { optional: true, doc: "Client secret at GitHub" }),
  githubIssuer: text("SANDGATE_SSO_GITHUB_ISSUER", {
    default: "https://github.com",
    doc: "Address of GitHub, or of a GitHub Enterprise Server",
  }),
  githubApiUrl: text("SANDGATE_SSO_GITHUB_API_URL", {
    default: "https://api.github.com",
    doc: "Address of GitHub's API. That of a GitHub Enterprise Server ends in /api/v3",
  }),
});

type SsoSettings = SettingValues<typeof ssoSettings>;

/** A client that is registered at a provider. */
interface ProviderClient {
  issuer: URL;
  clientId: string;
  clientSecret: string;
}

export type ProviderSettings =
  | (ProviderClient & { name: "google" })
  | (ProviderClient & { name: "microsoft"; trustEmail: boolean })
  | (ProviderClient & { name: "github"; apiUrl: URL });

/** The providers that are set up. Throws a SettingsError that names every invalid setting. */
export function parseSsoSettings(settings: SsoSettings): ProviderSettings[] {
  const names = ssoSettings;
  const problems: string[] = [];
  const providers: ProviderSettings[] = [];

  function parseAddress(key: "googleIssuer" | "microsoftIssuer" | "githubIssuer" | "githubApiUrl"): URL | undefined {
    const url = URL.parse(settings[key]);
    if (url && isSafe(url) && url.search === "" && url.hash === "") return url;
    problems.push(
      `${names[key].name} must be an https address, or an http one of this machine, not "${settings[key]}"`,
    );
    return undefined;
  }

  function parseClient(provider: "google" | "microsoft" | "github"): ProviderClient | undefined {
    const [id, secret] = [`${provider}ClientId`, `${provider}ClientSecret`] as const;
    const [clientId, clientSecret] = [settings[id], settings[secret]];
    if (clientId === undefined && clientSecret === undefined) return undefined;
    const issuer = parseAddress(`${provider}Issuer`);
    if (clientId === undefined || clientSecret === undefined) {
      const [set, missing] = clientId === undefined ? [secret, id] : [id, secret];
      problems.push(`${names[missing].name} is missing, while ${names[set].name} is set`);
      return undefined;
    }
    return issuer && { issuer, clientId, clientSecret };
  }

  const google = parseClient("google");
  if (google) providers.push({ ...google, name: "google" });
  const microsoft = parseClient("microsoft");
  const trustEmail = settings.microsoftTrustEmail;
  if (microsoft) providers.push({ ...microsoft, name: "microsoft", trustEmail });
  if (microsoft && trustEmail && isOfManyTenants(microsoft.issuer)) {
    problems.push(`${names.microsoftTrustEmail.name} needs a single tenant's ${names.microsoftIssuer.name}`);
  }
  const github = parseClient("github");
  const apiUrl = github && parseAddress("githubApiUrl");
  if (github && apiUrl) providers.push({ ...github, name: "github", apiUrl });

  const { redirectUris } = settings;
  for (const uri of redirectUris) {
    if (!isRedirectUri(uri)) {
      problems.push(`${names.redirectUris.name} has "${uri}", which is not an http or https URL without a fragment`);
    }
  }
  if (problems.length > 0) throw new SettingsError(problems);
  return providers;
}

/** Whether anybody's tenant signs in there, so that nobody vouches for what its administrators write into accounts. */
export function isOfManyTenants(issuer: URL): boolean {
  return /^\/(common|organizations|consumers)(\/|$)/.test(issuer.pathname);
}

/** Plain HTTP is for tests and for a provider on the same machine. */
function isSafe({ protocol, hostname }: URL): boolean {
  return protocol === "https:" || (protocol === "http:" && ["127.0.0.1", "[::1]", "localhost"].includes(hostname));
}

function isRedirectUri(uri: string): boolean {
  return isWebAddress(uri) && !uri.includes("#");
}
