import autocannon from "autocannon";

/** Concurrent requests. */
export const connections = 16;

/**
 * Sends requests with a bearer token, in a workspace or none: a number of them, or for a number of seconds. Throws when
 * one fails.
 */
export async function load(
  url: string,
  { token, workspace }: { token: string; workspace?: string },
  extent: { amount: number } | { duration: number },
) {
  const headers = { authorization: `Bearer ${token}`, ...(workspace && { "x-workspace-id": workspace }) };
  const result = await autocannon({ url, connections, headers, ...extent });
  if (result.non2xx === 0 && result.errors === 0) return result;
  throw new Error(`${url}: ${result.non2xx} failed, ${result.errors} errors`);
}
