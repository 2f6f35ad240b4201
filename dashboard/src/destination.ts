/** Where somebody wanted to go before the sign-in, within the dashboard; the sandboxes unless that is known. */
export function destination(next = "/sandboxes"): { to: string; search: Record<string, string> } {
  const { origin, pathname, searchParams } = new URL(next, location.origin);
  if (origin !== location.origin) return { to: "/sandboxes", search: {} };
  return { to: pathname, search: Object.fromEntries(searchParams) };
}
