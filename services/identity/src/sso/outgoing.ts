import { limitResponse } from "@sandgate/kit/base/limited-response";
import { mebibyte } from "@sandgate/kit/base/sizes";
import type { FetchBody } from "openid-client";

/** How long a provider may take for one response. */
export const providerTimeoutMs = 5_000;
/** How long a response may be. Key sets and lists of addresses have some kilobytes. */
const maxResponseBytes = mebibyte;

/** Sends a request to a provider. */
export type Fetch = (
  url: string,
  options: Omit<RequestInit, "body" | "signal"> & { body?: FetchBody; signal?: AbortSignal | undefined },
) => Promise<Response>;

/** Providers are named by the operator, so they may be at any address. Reading a response fails once it is too long. */
export const fetchFromProvider: Fetch = async (url, { body = null, signal = null, ...options }) => {
  const response = await fetch(url, { ...options, body, signal });
  return limitResponse(response, maxResponseBytes);
};
