/** What a registry asks for with `WWW-Authenticate`. */
export type Challenge =
  | { readonly scheme: "basic" }
  | {
      readonly scheme: "bearer";
      readonly realm: string;
      readonly service: string | undefined;
      readonly scope: string | undefined;
    };

const parameter = `[A-Za-z_]+="(?:[^"\\\\]|\\\\.)*"|[A-Za-z_]+=[^\\s",]+`;
const challenges = new RegExp(`(Basic|Bearer)((?:[\\s,]+(?:${parameter}))*)`, "gi");
const parameters = /([A-Za-z_]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))/g;

/** Reads the challenges of a header (RFC 9110, 11.6.1). Returns the one to meet: Bearer if there is one, else Basic. */
export function parseChallenge(header: string | undefined): Challenge | undefined {
  let basic: Challenge | undefined;
  for (const [, scheme, rest] of (header ?? "").matchAll(challenges)) {
    if (scheme?.toLowerCase() === "basic") {
      basic = { scheme: "basic" };
      continue;
    }
    const values = new Map<string, string>();
    for (const [, name = "", quoted, plain] of (rest ?? "").matchAll(parameters)) {
      values.set(name.toLowerCase(), quoted?.replace(/\\(.)/g, "$1") ?? plain ?? "");
    }
    const realm = values.get("realm");
    if (realm !== undefined) {
      return { scheme: "bearer", realm, service: values.get("service"), scope: values.get("scope") };
    }
  }
  return basic;
}
