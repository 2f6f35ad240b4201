/**
 * The HTML standard's "valid e-mail address", as a registration takes it. It is ASCII: another script's letters may
 * fold to the same user name as somebody else's.
 */
const emailPattern =
  /^[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$/;
const maxEmailLength = 254;

/** The address if it can be a user name. */
export function toEmail(address: unknown): string | undefined {
  const fits = typeof address === "string" && address.length <= maxEmailLength && emailPattern.test(address);
  return fits ? address : undefined;
}
