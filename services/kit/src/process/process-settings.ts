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

/** Where each service listens by default. */
const ports: Record<ServiceName, number> = {
  identity: 8081,
  workspace: 8082,
  "image-registry": 8083,
  sandbox: 8084,
  telemetry: 8085,
};

/** The settings of a process that takes part in events. */
export const eventSettings = defineSettings({
  events: secret("SANDGATE_EVENTS", {
    accepts: (url) => /^(nats|tls):\/\//.test(url),
    expects: "nats://… or tls://…, since the local bus ends with its process",
    doc: "The event bus: nats://host:4222 or tls://…, several servers separated by commas",
  }),
  eventsUser: text("SANDGATE_EVENTS_USER", { optional: true, doc: "This process's user at the event bus" }),
  eventsPassword: secret("SANDGATE_EVENTS_PASSWORD", { optional: true, doc: "The password of that user" }),
  eventsCredentialsFile: text("SANDGATE_EVENTS_CREDENTIALS_FILE", {
    optional: true,
    doc: "A NATS credentials file instead of user and password. Read again at each connect",
  }),
});

/** The settings of every process of the distributed form. */
export const commonSettings = defineSettings({
  adminHost: text("SANDGATE_ADMIN_HOST", {
    default: "0.0.0.0",
    doc: "The address of metrics and health for operators",
  }),
  adminPort: integer("SANDGATE_ADMIN_PORT", {
    default: 9464,
    min: 0,
    max: 65_535,
    doc: "The port of metrics and health for operators; 0 takes any free one",
  }),
  internalKeyFile: text("SANDGATE_INTERNAL_KEY_FILE", {
    doc: "This process's private Ed25519 key (JWK), which signs its calls. Read again when it changes",
  }),
  tlsCertFile: text("SANDGATE_TLS_CERT_FILE", {
    optional: true,
    doc: "This process's certificate (PEM, with its chain): a service answers calls by TLS with it, and callers show it. Read again when it changes",
  }),
  tlsKeyFile: text("SANDGATE_TLS_KEY_FILE", {
    optional: true,
    doc: "The private key of that certificate (PEM). Read again when it changes",
  }),
  tlsCaFile: text("SANDGATE_TLS_CA_FILE", {
    optional: true,
    doc: "Certificates (PEM) of those who signed the other processes' certificates, the only ones trusted. Unset: the system's. Read again when it changes",
  }),
  logLevel: choice("SANDGATE_LOG_LEVEL", ["trace", "debug", "info", "warn", "error", "fatal", "silent"], {
    default: "info",
    doc: "The lowest level of log lines written to standard output",
  }),
});

/** The settings of the facade and of every service's process, besides addresses and its own. */
export const processSettings = defineSettings({ ...eventSettings, ...commonSettings });

/** The settings of a service's process, beside those of every process and the service's own. */
export function serviceProcessSettings(service: ServiceName) {
  return defineSettings({
    database: secret("SANDGATE_DATABASE", {
      accepts: (url) => /^mongodb(\+srv)?:\/\//.test(url),
      expects: "mongodb://… or mongodb+srv://…, since SQLite's files belong to one process",
      doc: "The MongoDB replica set: mongodb://…; every service has a database of its own in it",
    }),
    host: text("SANDGATE_HOST", { default: "0.0.0.0", doc: "The address the service listens on" }),
    port: integer("SANDGATE_PORT", {
      default: ports[service],
      min: 0,
      max: 65_535,
      doc: "The port of the service; 0 takes any free one",
    }),
    keysFile: text("SANDGATE_KEYS_FILE", {
      doc: "The key ring that seals secrets, the same for all replicas. It is never created here",
    }),
    tlsClients: choice("SANDGATE_TLS_CLIENTS", ["any", "certified"], {
      default: "any",
      doc: "certified refuses callers without a certificate that SANDGATE_TLS_CA_FILE's signed",
    }),
    internalJwksFile: text("SANDGATE_INTERNAL_JWKS_FILE", {
      doc: "The public keys of all callers (a JSON Web Key Set). Read again when it changes",
    }),
  });
}

/** Throws a SettingsError for certificates that make no sense together. */
export function checkTlsSettings(o: Pick<SettingValues<typeof commonSettings>, "tlsCertFile" | "tlsKeyFile">): void {
  if ((o.tlsCertFile === undefined) === (o.tlsKeyFile === undefined)) return;
  throw new SettingsError([`${commonSettings.tlsCertFile.name} and ${commonSettings.tlsKeyFile.name} need each other`]);
}

/** The address of each service but `self`. */
export function addressSettings(self?: ServiceName) {
  return addressesOf(serviceNames.filter((service) => service !== self));
}

/** The address of each of the services. */
export function addressesOf(services: readonly ServiceName[]) {
  return Object.fromEntries(
    services.map((service) => [
      service,
      text(`SANDGATE_${service.replace("-", "_").toUpperCase()}_URL`, {
        accepts: (urls) => urls.split(",").every((url) => /^https?:$/.test(URL.parse(url)?.protocol ?? "")),
        expects: "http://host:port or https://host:port",
        doc: `Where ${service} is: http://host:port, or https://host:port where it has a certificate. A host with several addresses has a replica at each, as do several URLs separated by commas`,
      }),
    ]),
  );
}

/** Reads several parts' settings into one object. Throws a SettingsError that names every bad setting of every part. */
export function readParts<const P extends Record<string, SettingDefinitions>>(
  parts: P,
  env: NodeJS.ProcessEnv,
): { readonly [K in keyof P]: SettingValues<P[K]> } {
  const values = readEach(Object.values(parts).map((definitions) => () => readSettings(definitions, env)));
  // Each part was read by the definitions of its name.
  return Object.fromEntries(Object.keys(parts).map((part, index) => [part, values[index]])) as {
    [K in keyof P]: SettingValues<P[K]>;
  };
}

/** What each of these reads. Throws a SettingsError that names every bad setting of all of them. */
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
  // Each value is its reader's, or its problems were thrown.
  return values as { [I in keyof R]: ReturnType<R[I]> };
}
