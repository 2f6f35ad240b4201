import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { facadeSettings } from "@sandgate/facade";
import { identitySettings } from "@sandgate/identity";
import { imageRegistrySettings } from "@sandgate/image-registry";
import { type ServiceName, serviceNames } from "@sandgate/kit/base/service-names";
import type { SettingDefinitions } from "@sandgate/kit/base/settings";
import {
  addressesOf,
  addressSettings,
  commonSettings,
  processSettings,
  serviceProcessSettings,
} from "@sandgate/kit/process/process-settings";
import { sandboxSettings } from "@sandgate/sandbox";
import { collectorSettings, telemetrySettings } from "@sandgate/telemetry";
import { workspaceService } from "@sandgate/workspace";
import { parse, parseAllDocuments } from "yaml";

export const root = join(import.meta.dirname, "../..");
export const processNames = ["facade", ...serviceNames] as const;
export type ProcessName = (typeof processNames)[number];

const services: Record<ServiceName, SettingDefinitions> = {
  identity: identitySettings,
  workspace: workspaceService.settings,
  "image-registry": imageRegistrySettings,
  sandbox: sandboxSettings,
  telemetry: telemetrySettings,
};

/** All settings of a process as its main.ts reads them. */
export function settingsOf(name: ProcessName): Record<"common" | "addresses" | "own", SettingDefinitions> {
  if (name === "facade") return { common: processSettings, addresses: addressSettings(), own: facadeSettings };
  const own = { ...services[name], ...serviceProcessSettings(name) };
  return { common: processSettings, addresses: addressSettings(name), own };
}

/** All settings of the collector on each node of a cluster. */
export const settingsOfCollector = {
  common: commonSettings,
  addresses: addressesOf(["telemetry"]),
  own: collectorSettings,
};

/** All settings of the gateway that serves previews. */
export const settingsOfGateway = {
  common: commonSettings,
  addresses: addressesOf(["sandbox", "workspace"]),
  own: facadeSettings,
};

/** The environment variables that some process reads, the `…_FILE` of secrets included. */
export function knownVariables(): Set<string> {
  const definitions = processNames.flatMap((name) =>
    Object.values(settingsOf(name)).flatMap(Object.values<SettingDefinitions[string]>),
  );
  return new Set(definitions.flatMap(({ name, kind }) => (kind === "secret" ? [name, `${name}_FILE`] : [name])));
}

/** One process as a deployment file describes it. */
export interface Deployed {
  env: Record<string, string>;
  /** The program that its image runs. */
  program: string;
}

export function readText(path: string): string {
  return readFileSync(join(root, path), "utf8");
}

/** The little of a compose file that is looked at here. */
interface ComposeFile {
  services: Record<
    string,
    {
      environment?: Record<string, string | boolean | null>;
      command?: string[];
      image: string;
      ports?: string[];
      user?: string;
      cap_drop?: string[];
      cap_add?: string[];
      security_opt?: string[];
      volumes?: string[];
      network_mode?: string;
      pid?: string;
      userns_mode?: string;
    }
  >;
  volumes: Record<string, unknown>;
}

/** The compose file as it is when nothing is set in its environment. */
export function readCompose(): ComposeFile {
  const text = readText("deploy/compose/compose.yaml").replaceAll(
    /\$\{\w+(?::-([^}]*)|:\?[^}]*)?\}/g,
    (_, value) => value ?? "",
  );
  return parse(text, { merge: true });
}

export function readComposeProcess(name: ProcessName): Deployed {
  const { environment = {}, command = [] } = readCompose().services[name] ?? {};
  const env = Object.fromEntries(
    Object.entries(environment).map(([variable, value]) => [variable, String(value ?? "")]),
  );
  return { env, program: command[0] ?? "" };
}

/** The little of a Kubernetes object that is looked at here. */
export interface KubernetesObject {
  kind: string;
  metadata: { name: string };
  spec: {
    ports: { port: number }[];
    podSelector: { matchLabels?: Record<string, string> };
    egress?: { to?: { podSelector?: { matchLabels?: Record<string, string> } }[]; ports: { port: number }[] }[];
    ingress?: { from?: { podSelector?: { matchLabels?: Record<string, string> } }[]; ports: { port: number }[] }[];
    template: {
      spec: {
        containers: {
          args?: string[];
          env?: { name: string; value?: string }[];
          envFrom?: { configMapRef: { name: string } }[];
          volumeMounts?: { name: string; readOnly?: boolean }[];
          securityContext?: object;
        }[];
        volumes?: { name: string; hostPath?: { path: string; type: string } }[];
      };
    };
  };
}

const kubernetes = "deploy/kubernetes";

export function readKubernetes(file: string): KubernetesObject[] {
  return parseAllDocuments(readText(`${kubernetes}/${file}`)).map((document) => {
    if (document.errors[0]) throw document.errors[0];
    return document.toJS();
  });
}

/** A process of the base, changed by an overlay's file of that process. */
export function readKubernetesProcess(name: ProcessName, overlay?: string): Deployed {
  const files = [`base/${name}.yaml`];
  if (overlay && readdirSync(join(root, kubernetes, overlay)).includes(`${name}.yaml`))
    files.push(`${overlay}/${name}.yaml`);
  return readDeployments(files);
}

/** The gateway, with the settings of the base. */
export function readKubernetesGateway(): Deployed {
  return readDeployments(["gateway/gateway.yaml"]);
}

function readDeployments(files: readonly string[]): Deployed {
  const deployed: Deployed = { env: {}, program: "" };
  for (const container of files
    .flatMap(readKubernetes)
    .filter(({ kind }) => kind === "Deployment")
    .flatMap(({ spec }) => spec.template.spec.containers)) {
    for (const { configMapRef } of container.envFrom ?? [])
      Object.assign(deployed.env, readEnvFile(`${kubernetes}/base/${configMapRef.name}.env`));
    // What is known only on a node is an address.
    for (const { name: variable, value = "192.0.2.1" } of container.env ?? []) deployed.env[variable] = value;
    deployed.program = container.args?.[0] ?? deployed.program;
  }
  return deployed;
}

export function readEnvFile(path: string): Record<string, string> {
  return Object.fromEntries(
    readText(path)
      .split("\n")
      .filter((line) => line.includes("="))
      .map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]),
  );
}

/** The names of every file below a folder, from the repository's root. */
export function listFiles(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1))
    .filter((file) => !file.includes("node_modules/") && !file.includes("/secrets/"));
}
