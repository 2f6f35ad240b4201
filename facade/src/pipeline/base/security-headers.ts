export type SecurityHeaders = Readonly<Record<string, string>>;

const yearSeconds = 31_536_000;

/**
 * The headers of every response, unless a page sets its own. Browsers run, frame, sniff and keep nothing (RFC 6749,
 * 5.1, forbids to keep credentials). Where clients reach this server by https, browsers use nothing else for a year
 * (RFC 6797).
 */
export function securityHeadersFor(publicUrl: string): SecurityHeaders {
  const isHttps = new URL(publicUrl).protocol === "https:";
  return {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    ...(isHttps && { "strict-transport-security": `max-age=${yearSeconds}; includeSubDomains` }),
  };
}
