import { publicUrl } from "@sandgate/kit/base/public-url";
import {
  defineSettings,
  flag,
  integer,
  list,
  readSettings,
  SettingsError,
  type SettingValues,
  text,
} from "@sandgate/kit/base/settings";
import { isWebAddress } from "@sandgate/kit/base/web-addresses";
import ipaddr from "ipaddr.js";
import { checkE2bSettings, e2bSettings } from "./e2b/settings.ts";
import { isSameSite, localhost } from "./previews/hosts.ts";

/** The facade's settings. */
export const facadeSettings = defineSettings({
  host: text("SANDGATE_HOST", { default: "0.0.0.0", doc: "The address the public API listens on" }),
  port: integer("SANDGATE_PORT", {
    default: 8080,
    min: 0,
    max: 65535,
    doc: "The port of the public API; 0 takes any free one",
  }),
  publicUrl,
  previewDomain: text("SANDGATE_PREVIEW_DOMAIN", {
    default: localhost,
    doc: "The domain of previews of ports: https://<label>.<domain>. It must be of another site than the API, so that nothing in a sandbox reaches the API's cookies. localhost: http, at the API's port, for clients on this machine alone",
  }),
  rateLimit: integer("SANDGATE_RATE_LIMIT", {
    default: 600,
    doc: "Requests a minute for each user or API token, and for each address without one; a user with tokens may send twice as many with all together. 0: no limit",
  }),
  signInRateLimit: integer("SANDGATE_SIGNIN_RATE_LIMIT", {
    default: 10,
    doc: "Sign-ins a minute from each address, attempts at an account from there, and requests that may send a mail. 0: no limit",
  }),
  changeRateLimit: integer("SANDGATE_CHANGE_RATE_LIMIT", {
    default: 3_600,
    min: 0,
    doc: "Requests an hour with which a user creates or changes something, since the audit log keeps an entry of each for long; five times as many in each workspace. Deletions, stops and reads don't count. 0: no limit",
  }),
  trustedProxies: list("SANDGATE_TRUSTED_PROXIES", {
    default: [],
    doc: "Addresses or CIDR ranges of the proxies whose X-Forwarded-For is trusted",
  }),
  dashboard: flag("SANDGATE_DASHBOARD", {
    default: true,
    doc: "Whether the dashboard is served below /dashboard/, and browsers that open / are sent there",
  }),
  ...e2bSettings,
  redirectUris: list("SANDGATE_REDIRECT_URIS", {
    default: [],
    doc: "Addresses of applications: single sign-on ends at one of them, the first unless it is named, and browsers may call the API from their origins",
  }),
});

export type FacadeSettings = SettingValues<typeof facadeSettings>;

/** Throws a SettingsError that names every invalid setting. */
export function readFacadeSettings(env: NodeJS.ProcessEnv): FacadeSettings {
  const settings = readSettings(facadeSettings, env);
  const { trustedProxies, redirectUris } = settings;
  const problems = [
    ...trustedProxies
      .filter((item) => !ipaddr.isValid(item) && !ipaddr.isValidCIDR(item))
      .map((item) => `SANDGATE_TRUSTED_PROXIES has "${item}", which is neither an address nor a CIDR range`),
    ...redirectUris
      .filter((item) => !isWebAddress(item))
      .map((item) => `SANDGATE_REDIRECT_URIS has "${item}", which is not an http or https URL`),
  ];
  problems.push(...checkE2bSettings(settings), ...checkPreviewSettings(settings));
  if (problems.length > 0) throw new SettingsError(problems);
  return settings;
}

/** Names of RFC 1123, one for the labels of previews before it. */
const domainName = /^(?=.{1,200}$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$/;

/** What is wrong with the domain of previews. */
function checkPreviewSettings({ previewDomain, publicUrl }: FacadeSettings): string[] {
  if (!domainName.test(previewDomain)) {
    return ["SANDGATE_PREVIEW_DOMAIN must be a domain name in lower case, without a port"];
  }
  if (!isSameSite(previewDomain, new URL(publicUrl).hostname)) return [];
  return ["SANDGATE_PREVIEW_DOMAIN must be of another site than SANDGATE_PUBLIC_URL, by the public suffix list"];
}
