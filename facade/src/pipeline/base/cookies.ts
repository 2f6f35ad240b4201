/** The value of the first cookie of this name in a Cookie header. Undefined: there is none. */
export function readCookie(header: string | undefined, name: string): string | undefined {
  const start = `${name}=`;
  const pair = header?.split(";").find((each) => each.trim().startsWith(start));
  return pair?.trim().slice(start.length);
}
