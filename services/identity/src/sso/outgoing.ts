import type { FetchBody } from "openid-client";

/** How long a provider may take for one response. */
export const providerTimeoutMs = 5_000;

/** Sends a request to a provider. */
export type Fetch = (
  url: string,
  options: Omit<RequestInit, "body" | "signal"> & { body?: FetchBody; signal?: AbortSignal | undefined },
) => Promise<Response>;

/** Providers are named by the operator, so they may be at any address. */
export const fetchFromProvider: Fetch = (url, { body = null, signal = null, ...options }) =>
  fetch(url, { ...options, body, signal });
