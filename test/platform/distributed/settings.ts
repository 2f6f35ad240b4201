import { join } from "node:path";
import { type ServiceName, serviceNames } from "@sandgate/kit/base/service-names";
import type { TlsFiles } from "@sandgate/kit/rpc/tls";
import { unlimited } from "../limits.ts";
import { defaultImageSetting, withoutSettings } from "../local.ts";
import type { ReplicaPorts } from "./ports.ts";
import type { Part } from "./replica.ts";

const root = join(import.meta.dirname, "../../..");

/** `image-registry` in the names of settings: `IMAGE_REGISTRY`. */
export function toVariable(name: string): string {
  return name.toUpperCase().replaceAll("-", "_");
}

/** The environment variable that holds a service's addresses. */
export function addressVariable(service: ServiceName): string {
  return `SANDGATE_${toVariable(service)}_URL`;
}

/** The settings that all processes of a platform share. */
export async function commonSettings(o: {
  folder: string;
  keysFolder: string;
  host: string;
  admin: { username: string; password: string };
  databaseUrl: string;
  urlsOf(part: Part): string[];
}): Promise<NodeJS.ProcessEnv> {
  return {
    ...withoutSettings(process.env),
    // The same modules are compiled in a dozen processes.
    NODE_COMPILE_CACHE: join(root, ".cache/compiled"),
    ...Object.fromEntries(serviceNames.map((service) => [addressVariable(service), o.urlsOf(service).join(",")])),
    SANDGATE_HOST: o.host,
    SANDGATE_ADMIN_HOST: o.host,
    SANDGATE_PUBLIC_URL: o.urlsOf("facade")[0] ?? "",
    SANDGATE_DATABASE: o.databaseUrl,
    SANDGATE_DATA: o.folder,
    SANDGATE_ADMIN_USERNAME: o.admin.username,
    SANDGATE_ADMIN_PASSWORD: o.admin.password,
    SANDGATE_DEFAULT_IMAGE: await defaultImageSetting(),
    SANDGATE_KEYS_FILE: join(o.keysFolder, "keyring.json"),
    SANDGATE_INTERNAL_JWKS_FILE: join(o.keysFolder, "jwks.json"),
    SANDGATE_PULL_PORT: "0",
    ...unlimited,
  };
}

/** What processes need to call each other with TLS alone, each with a certificate. */
export function tlsSettings(
  { certFile = "", keyFile = "", caFile = "" }: TlsFiles,
  urlsOf: (part: Part) => string[],
): NodeJS.ProcessEnv {
  const addressOf = (service: ServiceName) => urlsOf(service).join(",").replaceAll("http:", "https:");
  return {
    ...Object.fromEntries(serviceNames.map((service) => [addressVariable(service), addressOf(service)])),
    SANDGATE_TLS_CERT_FILE: certFile,
    SANDGATE_TLS_KEY_FILE: keyFile,
    SANDGATE_TLS_CA_FILE: caFile,
    SANDGATE_TLS_CLIENTS: "certified",
  };
}

/** One replica's settings besides those. */
export function replicaSettings(
  { part, port, adminPort }: ReplicaPorts,
  o: { adminSocket: string; keysFolder: string; natsUrl(user: Part): string },
): Record<string, string> {
  return {
    SANDGATE_PORT: String(port),
    SANDGATE_ADMIN_PORT: String(adminPort),
    SANDGATE_ADMIN_SOCKET: o.adminSocket,
    SANDGATE_EVENTS: o.natsUrl(part),
    SANDGATE_INTERNAL_KEY_FILE: join(o.keysFolder, `${part}.jwk.json`),
  };
}
