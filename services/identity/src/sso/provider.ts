/** What a sign-in sends along, to recognize its own response. */
export interface SignInSecrets {
  state: string;
  /** Comes back inside the ID token. */
  nonce: string;
  /** The verifier of PKCE (RFC 7636). Without it nobody can redeem the code. */
  codeVerifier: string;
}

/** Who has signed in at a provider. */
export interface ProviderAccount {
  issuer: string;
  subject: string;
  /** Undefined when the provider tells none that can be a user name. */
  email: string | undefined;
  /** Whether the provider has verified that address. */
  emailVerified: boolean;
}

/** A server where users sign in. */
export interface SsoProvider {
  /** Where to send the browser. Throws UPSTREAM_ERROR. */
  authorizationUrl(callbackUrl: string, secrets: SignInSecrets): Promise<URL>;
  /**
   * Redeems the response, which is the callback's address with the provider's parameters. Throws FORBIDDEN when the
   * user cancelled, INVALID_TOKEN for a response that fails a check, UPSTREAM_ERROR.
   */
  identify(response: URL, secrets: SignInSecrets): Promise<ProviderAccount>;
}
