/** A container image reference, taken apart and normalized as Docker does it. */
export interface Reference {
  /** host[:port], in lower case; "docker.io" where none is given. */
  readonly host: string;
  /** With Docker Hub's "library/" where the name has one part only. */
  readonly repository: string;
  readonly tag: string | undefined;
  readonly digest: string | undefined;
}

/** The host in the names of Docker Hub's images; its API is at another host. */
export const dockerHub = "docker.io";

/** The host in the names of default images that are on the engine alone; a registry there is named with its port. */
const engineHost = "localhost";

/** Of a full name, host/repository. */
const maxNameCharacters = 255;

// The grammar of github.com/distribution/reference, whose package documentation these names come from.
const domainComponent = "[a-zA-Z0-9]+(?:-+[a-zA-Z0-9]+)*";
const domainName = `${domainComponent}(?:\\.${domainComponent})*`;
const ipv6Address = "\\[(?:[a-fA-F0-9:]+)\\]";
const domain = `(?:${domainName}|${ipv6Address})(?::[0-9]+)?`;
const pathComponent = "[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*";
const remoteName = `${pathComponent}(?:/${pathComponent})*`;
const tag = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}";
// The algorithms that the OCI image specification registers, with the length of their hexadecimal digits.
const digest = "sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128}";

const referencePattern = new RegExp(`^((?:${domain}/)?${remoteName})(?::(${tag}))?(?:@(${digest}))?$`);
const tagPattern = new RegExp(`^${tag}$`);
const digestPattern = new RegExp(`^(?:${digest})$`);
/** A name that could be mistaken for the id of an image on the engine. */
const identifierPattern = /^[a-f0-9]{64}$/;

/**
 * Parses a reference; undefined for any other text, also where the name with its host has more than 255 characters.
 * What `formatReference` makes of a reference, with any tag or digest, is parsed to the same name.
 */
export function parseReference(text: string): Reference | undefined {
  const [, name, tag, digest] = referencePattern.exec(text) ?? [];
  if (name === undefined || identifierPattern.test(name)) return undefined;
  const { host, path } = splitDomain(name);
  // What the grammar takes for a path may be a host to Docker, which leaves no valid path.
  if (!new RegExp(`^${remoteName}$`).test(path)) return undefined;
  const repository = host === dockerHub && !path.includes("/") ? `library/${path}` : path;
  if (`${host}/${repository}`.length > maxNameCharacters) return undefined;
  return { host, repository, tag, digest };
}

/**
 * A first part is a host only when it looks like one: with a dot, a port or capitals, or as "localhost". One that does
 * so by its capitals alone gets its port, since in lower case it would be a part of a path at Docker Hub.
 */
function splitDomain(name: string): { host: string; path: string } {
  const slash = name.indexOf("/");
  const first = name.slice(0, Math.max(slash, 0));
  const host = first.toLowerCase();
  const path = name.slice(slash + 1);
  if (/[.:]/.test(host) || host === "localhost") return { host: host === "index.docker.io" ? dockerHub : host, path };
  return host === first ? { host: dockerHub, path: name } : { host: `${host}:443`, path };
}

/** Whether a global default image with this reference is on the engine alone, so that no registry is asked for it. */
export function hasEngineHost({ host }: Pick<Reference, "host">): boolean {
  return host === engineHost;
}

/** Whether it is a valid tag. */
export function isTag(text: string): boolean {
  return tagPattern.test(text);
}

/** Whether it is a digest by one of the algorithms that the OCI image specification registers. */
export function isDigest(text: string): boolean {
  return digestPattern.test(text);
}

/** The full name to pull: by digest where there is one, else by tag ("latest" without either). */
export function formatReference({ host, repository, tag, digest }: Reference): string {
  return digest === undefined ? `${host}/${repository}:${tag ?? "latest"}` : `${host}/${repository}@${digest}`;
}
