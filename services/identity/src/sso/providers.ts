import { createGithubProvider } from "./github.ts";
import { createOpenIdProvider, hasVerifiedEmail, hasVerifiedEmailAtMicrosoft } from "./openid.ts";
import { type Fetch, fetchFromProvider } from "./outgoing.ts";
import type { SsoProvider } from "./provider.ts";
import type { ProviderSettings } from "./settings.ts";

/** The providers that are set up, by name. */
export function createProviders(
  all: readonly ProviderSettings[],
  { fetch = fetchFromProvider, ...o }: { fetch?: Fetch; now: () => Date; timeoutMs?: number },
): ReadonlyMap<string, SsoProvider> {
  return new Map(all.map((settings) => [settings.name, createProvider(settings, { ...o, fetch })]));
}

function createProvider(
  settings: ProviderSettings,
  o: { fetch: Fetch; now: () => Date; timeoutMs?: number },
): SsoProvider {
  switch (settings.name) {
    case "google":
      return createOpenIdProvider({ ...settings, ...o, isVerified: hasVerifiedEmail });
    case "microsoft":
      return createOpenIdProvider({
        ...settings,
        ...o,
        isVerified: (claims) => settings.trustEmail || hasVerifiedEmailAtMicrosoft(claims),
      });
    case "github":
      return createGithubProvider({ ...settings, ...o });
  }
}
