import { type ServiceName, serviceNames } from "../base/service-names.ts";
import {
  choice,
  defineSettings,
  integer,
  readSettings,
  type SettingDefinitions,
  SettingsError,
  type SettingValues,
  secret,
  text,
} from "../base/settings.ts";

/** The default port of each service. */
const ports: Record<ServiceName, number> = {
  identity: 8081,
  workspace: 8082,
  "image-registry": 8083,
  sandbox: 8084,
  telemetry: 8085,
};

/** The settings of a process that sends or reads events. */
export const eventSettings = defineSettings({
  events: secret("SANDGATE_EVENTS", {
    accepts: (url) => /^(nats|tls):\/\//.test(url),
    expects: "nats://… or tls://…, since the local bus is for one process",
    doc: "The event bus: nats://host:4222 or tls://…, several servers separated by commas",
  }),
  eventsUser: text("SANDGATE_EVENTS_USER", {
    optional: true,
    doc: "The user as whom this process connects to the event bus",
  }),
  eventsPassword: secret("SANDGATE_EVENTS_PASSWORD", { optional: true, doc: "The password of that user" }),
  eventsCredentialsFile: text("SANDGATE_EVENTS_CREDENTIALS_FILE", {
    optional: true,
    doc: "A NATS credentials file, used instead of user and password. It is read at each connect",
  }),
});

/** The settings of every process of the distributed form. */
export const commonSettings = defineSettings({
  adminHost: text("SANDGATE_ADMIN_HOST", {
    default: "0.0.0.0",
    doc: "The address where operators read metrics and health",
  }),
  adminPort: integer("SANDGATE_ADMIN_PORT", {
    default: 9464,
    min: 0,
    max: 65_535,
    doc: "The port where operators read metrics and health; 0 takes any free port",
  }),
  adminSocket: text("SANDGATE_ADMIN_SOCKET", {
    optional: true,
    doc: "The path of the unix socket, open to the process's own user alone, at which operators' commands reach the process; none unless set. The image sets /tmp/admin.sock",
  }),
  internalKeyFile: text("SANDGATE_INTERNAL_KEY_FILE", {
    doc: "The file of this process's private Ed25519 key (JWK), which signs its calls. It is read again when it changes",
  }),
  tlsCertFile: text("SANDGATE_TLS_CERT_FILE", {
    optional: true,
    doc: "The file of this process's certificate (PEM, with its chain), with which a service serves TLS and a caller identifies itself. It is read again when it changes",
  }),
  tlsKeyFile: text("SANDGATE_TLS_KEY_FILE", {
    optional: true,
    doc: "The file of that certificate's private key (PEM). It is read again when it changes",
  }),
  tlsCaFile: text("SANDGATE_TLS_CA_FILE", {
    optional: true,
    doc: "The file of the certificates (PEM) of the only authorities trusted to sign the other processes' certificates; the system's unless set. It is read again when it changes",
  }),
  logLevel: choice("SANDGATE_LOG_LEVEL", ["trace", "debug", "info", "warn", "error", "fatal", "silent"], {
    default: "info",
    doc: "The lowest level of log lines written to standard output",
  }),
});

/** The settings that the facade and every service's process share, besides addresses. */
export const processSettings = defineSettings({ ...eventSettings, ...commonSettings });

/** The settings of a service's process, besides those of every process and the service's own. */
export function serviceProcessSettings(service: ServiceName) {
  return defineSettings({
    database: secret("SANDGATE_DATABASE", {
      accepts: (url) => /^mongodb(\+srv)?:\/\//.test(url),
      expects: "mongodb://… or mongodb+srv://…, since SQLite's files belong to one process",
      doc: "The MongoDB replica set, mongodb://…, in which every service has its own database",
    }),
    host: text("SANDGATE_HOST", { default: "0.0.0.0", doc: "The address on which the service listens" }),
    port: integer("SANDGATE_PORT", {
      default: ports[service],
      min: 0,
      max: 65_535,
      doc: "The port on which the service listens; 0 takes any free port",
    }),
    keysFile: text("SANDGATE_KEYS_FILE", {
      doc: "The file of the key ring that seals secrets, the same for all replicas. It is never created",
    }),
    tlsClients: choice("SANDGATE_TLS_CLIENTS", ["any", "certified"], {
      default: "any",
      doc: "`certified` refuses callers without a certificate that an authority in SANDGATE_TLS_CA_FILE has signed",
    }),
    internalJwksFile: text("SANDGATE_INTERNAL_JWKS_FILE", {
      doc: "The file of the public keys of all callers (a JSON Web Key Set). It is read again when it changes",
    }),
  });
}

/** Throws a SettingsError unless certificate and key are both set or both unset. */
export function checkTlsSettings(o: Pick<SettingValues<typeof commonSettings>, "tlsCertFile" | "tlsKeyFile">): void {
  if ((o.tlsCertFile === undefined) === (o.tlsKeyFile === undefined)) return;
  throw new SettingsError([`${commonSettings.tlsCertFile.name} and ${commonSettings.tlsKeyFile.name} need each other`]);
}

/** Settings for the address of each service except `self`. */
export function addressSettings(self?: ServiceName) {
  return addressesOf(serviceNames.filter((service) => service !== self));
}

/** Settings for the address of each of these services. */
export function addressesOf(services: readonly ServiceName[]) {
  return Object.fromEntries(
    services.map((service) => [
      service,
      text(`SANDGATE_${service.replace("-", "_").toUpperCase()}_URL`, {
        accepts: (urls) => urls.split(",").every((url) => /^https?:$/.test(URL.parse(url)?.protocol ?? "")),
        expects: "http://host:port or https://host:port",
        doc: `The address of ${service}: http://host:port, or https://host:port if it has a certificate. Several URLs are separated by commas. Every address of every host is one replica`,
      }),
    ]),
  );
}

/**
 * Reads several groups of settings into one object. Throws a SettingsError that names every bad setting of every group.
 */
export function readGroups<const P extends Record<string, SettingDefinitions>>(
  groups: P,
  env: NodeJS.ProcessEnv,
): { readonly [K in keyof P]: SettingValues<P[K]> } {
  const values = readEach(Object.values(groups).map((definitions) => () => readSettings(definitions, env)));
  // Each group was read by the definitions of its name.
  return Object.fromEntries(Object.keys(groups).map((group, index) => [group, values[index]])) as {
    [K in keyof P]: SettingValues<P[K]>;
  };
}

/** Returns what each of the readers returns. Throws one SettingsError that names every bad setting of all of them. */
export function readEach<const R extends readonly (() => unknown)[]>(
  readers: R,
): { readonly [I in keyof R]: ReturnType<R[I]> } {
  const problems = new Set<string>();
  const values = readers.map((read) => {
    try {
      return read();
    } catch (error) {
      if (!(error instanceof SettingsError)) throw error;
      for (const problem of error.problems) problems.add(problem);
      return undefined;
    }
  });
  if (problems.size > 0) throw new SettingsError([...problems]);
  // Each value is its reader's, since problems were thrown above.
  return values as { [I in keyof R]: ReturnType<R[I]> };
}
