import { findEngineAddress } from "@sandgate/docker-engine/address";
import { facadeSettings } from "@sandgate/facade";
import { identitySettings } from "@sandgate/identity";
import { imageRegistryService } from "@sandgate/image-registry";
import { type ServiceName, serviceNames } from "@sandgate/kit/base/service-names";
import {
  choice,
  defineSettings,
  integer,
  readSettings,
  type Setting,
  type SettingDefinitions,
  SettingsError,
  type SettingValues,
  secret,
  text,
} from "@sandgate/kit/base/settings";
import type { DatabaseTarget } from "@sandgate/kit/storage/open-store";
import { sandboxService } from "@sandgate/sandbox";
import { telemetryService } from "@sandgate/telemetry";
import { workspaceService } from "@sandgate/workspace";
import type { DataFolder } from "./data-folder.ts";

/** The settings of the one-machine launcher, besides those of the facade and the services. */
export const localSettings = defineSettings({
  data: text("SANDGATE_DATA", { default: "./data", doc: "Folder of this machine's data, created when missing" }),
  host: text("SANDGATE_HOST", { default: "127.0.0.1", doc: "The address the public API listens on" }),
  port: integer("SANDGATE_PORT", { default: 8080, min: 1, max: 65_535, doc: "The port of the public API" }),
  adminPort: integer("SANDGATE_ADMIN_PORT", {
    default: 9464,
    min: 0,
    max: 65_535,
    doc: "The port of metrics and health for operators, on the loopback address; 0 for none",
  }),
  adminSocket: text("SANDGATE_ADMIN_SOCKET", {
    optional: true,
    doc: "The path of the unix socket, open to the process's own user alone, at which operators' commands reach the process. Unset: admin.sock in SANDGATE_DATA",
  }),
  logLevel: choice("SANDGATE_LOG_LEVEL", ["trace", "debug", "info", "warn", "error", "fatal", "silent"], {
    default: "warn",
    doc: "The lowest level of log lines written to standard output",
  }),
  database: secret("SANDGATE_DATABASE", {
    default: "sqlite:",
    accepts: (url) => /^(sqlite:$|mongodb(\+srv)?:\/\/)/.test(url),
    expects: "sqlite: or mongodb://…",
    doc: "The database: SQLite files in SANDGATE_DATA, or a MongoDB replica set as mongodb://…",
  }),
  events: secret("SANDGATE_EVENTS", {
    default: "local:",
    accepts: (url) => /^(local:$|nats:\/\/)/.test(url),
    expects: "local: or nats://…",
    doc: "The event bus: local: (within the process, kept in SANDGATE_DATA) or nats://…",
  }),
  keysFile: text("SANDGATE_KEYS_FILE", {
    optional: true,
    doc: "The key ring that seals secrets, created at the first start. Unset: keys.json in SANDGATE_DATA",
  }),
});

export type LocalSettings = SettingValues<typeof localSettings> &
  Pick<SettingValues<typeof identitySettings>, "adminUsername" | "adminPassword">;

/** Where a service of this machine keeps its data. */
export function databaseOf({ database }: LocalSettings, folder: DataFolder, service: ServiceName): DatabaseTarget {
  return database === "sqlite:"
    ? { kind: "sqlite", file: folder.path(`${service}.sqlite`) }
    : { kind: "mongodb", url: database, name: `sandgate_${service.replace("-", "_")}` };
}

/** What the facade and each service read, in either form, by the titles that people know them by. */
export const sharedSettings: Readonly<Record<string, SettingDefinitions>> = {
  Facade: facadeSettings,
  Identity: identitySettings,
  Workspace: workspaceService.settings,
  "Image registry": imageRegistryService.settings,
  Sandbox: sandboxService.settings,
  Telemetry: telemetryService.settings,
};

/**
 * Every setting of the one-process platform, once each: where several parts read one, as the first of them describes
 * it.
 */
function allSettings(): Setting<unknown>[] {
  const byName = new Map<string, Setting<unknown>>();
  for (const setting of [localSettings, ...Object.values(sharedSettings)].flatMap((each) => Object.values(each))) {
    if (!byName.has(setting.name)) byName.set(setting.name, setting);
  }
  return [...byName.values()];
}

/**
 * The launcher's settings, and the environment for the services with what follows from them filled in. Throws a
 * SettingsError that names every bad setting of every part.
 */
export function readLocalSettings(given: NodeJS.ProcessEnv): { settings: LocalSettings; env: NodeJS.ProcessEnv } {
  const problems: string[] = [];
  try {
    readSettings(Object.fromEntries(allSettings().map((setting) => [setting.name, setting])), given);
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    problems.push(...error.problems);
  }
  for (const service of serviceNames) {
    const name = `SANDGATE_${service.replace("-", "_").toUpperCase()}_URL`;
    if (given[name]) problems.push(`${name} can't be set here: on one machine every service is in this process`);
  }
  if (problems.length > 0) throw new SettingsError(problems);

  const { adminUsername, adminPassword } = readSettings(identitySettings, given);
  const settings = { ...readSettings(localSettings, given), adminUsername, adminPassword };
  const { host, port } = settings;
  const shownHost = host === "0.0.0.0" || host === "::" ? "127.0.0.1" : host.includes(":") ? `[${host}]` : host;
  const env = {
    ...given,
    SANDGATE_HOST: host,
    SANDGATE_PORT: String(port),
    SANDGATE_PUBLIC_URL: given.SANDGATE_PUBLIC_URL || `http://${shownHost}:${port}`,
    SANDGATE_RUNTIME: findEngineAddress(given),
  };
  return { settings, env };
}
