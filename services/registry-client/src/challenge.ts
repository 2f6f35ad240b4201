/** What a registry asks for with `WWW-Authenticate`. */
export type Challenge =
  | { readonly scheme: "basic" }
  | {
      readonly scheme: "bearer";
      readonly realm: string;
      readonly service: string | undefined;
      readonly scope: string | undefined;
    };

/**
 * A scheme, or a parameter with its value, and what separates it from the next. A token68 goes like one of the two. It
 * begins where the last one ended, so a header is read once.
 */
const item = /([\w!#$%&'*+.^`|~-]+)(?:=(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))|=*)[\s,]*/gy;

/** Reads the challenges of a header (RFC 9110, 11.6.1). Returns the one to meet: Bearer if there is one, else Basic. */
export function parseChallenge(header: string | undefined): Challenge | undefined {
  const challenges: { scheme: string; values: Map<string, string> }[] = [];
  for (const [, name = "", quoted, plain] of (header ?? "").matchAll(item)) {
    const value = quoted?.replace(/\\(.)/g, "$1") ?? plain;
    if (value === undefined) challenges.push({ scheme: name.toLowerCase(), values: new Map() });
    else challenges.at(-1)?.values.set(name.toLowerCase(), value);
  }
  for (const { scheme, values } of challenges) {
    const realm = values.get("realm");
    if (scheme === "bearer" && realm !== undefined) {
      return { scheme, realm, service: values.get("service"), scope: values.get("scope") };
    }
  }
  return challenges.some(({ scheme }) => scheme === "basic") ? { scheme: "basic" } : undefined;
}
