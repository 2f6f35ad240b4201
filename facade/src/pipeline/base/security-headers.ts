export type SecurityHeaders = Readonly<Record<string, string>>;

const yearSeconds = 31_536_000;

/**
 * What every response tells browsers, unless a page says something more precise of itself: that nothing is run, framed, guessed
 * or kept (for credentials RFC 6749, 5.1, asks for it), and, where clients reach this server by https, that no other way may be
 * tried for a year (RFC 6797).
 */
export function securityHeadersFor(publicUrl: string | undefined): SecurityHeaders {
  const isHttps = publicUrl !== undefined && new URL(publicUrl).protocol === "https:";
  return {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    ...(isHttps && { "strict-transport-security": `max-age=${yearSeconds}; includeSubDomains` }),
  };
}
