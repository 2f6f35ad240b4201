import { writeFileSync } from "node:fs";
import { type ServiceName, serviceNames } from "@sandgate/kit/base/service-names";
import type { Setting, SettingDefinitions } from "@sandgate/kit/base/settings";
import { addressSettings, processSettings, serviceProcessSettings } from "@sandgate/kit/process/process-settings";
import { collectorSettings } from "@sandgate/telemetry/settings";
import { localSettings, sharedSettings } from "./settings.ts";

export const settingsPagePath = new URL("../../../docs/settings.md", import.meta.url);
export const settingNamesPath = new URL("../../../services/kit/src/base/setting-names.ts", import.meta.url);

const oneMachine = { "One machine": localSettings, ...sharedSettings };
const ofEveryProcess = { ...processSettings, ...addressSettings() };
const ofEveryService = serviceProcessSettings("identity");

const introduction = `<!-- Written by \`npm run generate\` from the definitions of the settings. -->
# Settings

Settings are environment variables. A start with bad settings is refused in one line that names each of them. Every setting marked
with * can also come from a file: set \`NAME_FILE\` to its path.

The one-machine platform (\`npm start\`) reads the settings under "One machine" and those of the facade and of every service. In the
distributed form each process reads its own, those of every process, and, if it is a service, those of every service.
[\`deploy/README.md\`](../deploy/README.md) says how to choose them there.
`;

/** \`docs/settings.md\`, made of the definitions that programs read their settings by. */
export function renderSettingsPage(): string {
  return [
    introduction,
    ...Object.entries(oneMachine).map(([title, settings]) => renderSection(title, settings)),
    renderSection("Every process of the distributed form", ofEveryProcess),
    renderSection("Every service of the distributed form", ofEveryService),
    `\`SANDGATE_PORT\` by service: ${serviceNames.map((name) => `${name} ${portOf(name)}`).join(", ")}.\n`,
    renderSection("Collector on each node of a cluster", collectorSettings),
  ].join("\n");
}

/** The module with the names of all settings of all processes, so that each process can tell what is none. */
export function renderSettingNames(): string {
  const groups = [...Object.values(oneMachine), ofEveryProcess, ofEveryService, collectorSettings];
  const names = groups
    .flatMap((settings: SettingDefinitions) => Object.values(settings))
    .flatMap(({ name, kind }) => (kind === "secret" ? [name, `${name}_FILE`] : [name]));
  return [
    "// Written by `npm run generate` from the definitions of the settings.",
    "export const settingNames: ReadonlySet<string> = new Set([",
    ...[...new Set(names)].toSorted().map((name) => `  "${name}",`),
    "]);",
    "",
  ].join("\n");
}

function portOf(service: ServiceName): string | undefined {
  return serviceProcessSettings(service).port.default;
}

function renderSection(title: string, settings: SettingDefinitions): string {
  const rows = Object.values(settings).map(renderRow);
  return [`## ${title}`, "", "| setting | default | meaning |", "| --- | --- | --- |", ...rows, ""].join("\n");
}

function renderRow({ name, kind, default: value, required, doc }: Setting<unknown>): string {
  const standard = required ? "required" : value ? `\`${value}\`` : "";
  return `| \`${name}\`${kind === "secret" ? " *" : ""} | ${standard} | ${doc.replaceAll("|", "\\|")} |`;
}

if (import.meta.main) {
  writeFileSync(settingsPagePath, renderSettingsPage());
  writeFileSync(settingNamesPath, renderSettingNames());
}
