import { text } from "@sandgate/kit/base/settings";

/** Where an engine listens. */
export type EngineAddress = { socketPath: string } | { host: string; port: number };

/**
 * Reads `docker:///path/to.sock` or `docker://host:port`, and the forms that DOCKER_HOST has, `unix://` and `tcp://`.
 * The port is 2375 unless given. Undefined for anything else.
 */
export function parseEngineAddress(address: string): EngineAddress | undefined {
  const url = URL.parse(address);
  if (!url) return undefined;
  const { protocol, hostname, pathname, port } = url;
  if ((protocol === "docker:" || protocol === "unix:") && url.host === "" && pathname.length > 1) {
    return { socketPath: decodeURIComponent(pathname) };
  }
  if ((protocol === "docker:" || protocol === "tcp:") && hostname !== "") {
    return { host: hostname, port: Number(port || 2375) };
  }
  return undefined;
}

/** The setting that every process with a connection to the engine has. */
export const runtimeSetting = text("SANDGATE_RUNTIME", {
  default: "docker:///var/run/docker.sock",
  accepts: (address) =>
    /^kubernetes:(\/|\.|$)/.test(address) ||
    (address.startsWith("docker:") && parseEngineAddress(address) !== undefined),
  expects: "docker:// and the path of a socket, docker://host:port, kubernetes: or kubernetes:/path/of/a/kubeconfig",
  doc: "What sandboxes run on: docker:// and the path of a container engine's socket, docker://host:port, or the cluster of kubernetes:/path/of/a/kubeconfig; kubernetes: alone is the cluster that this runs in",
});

/**
 * The engine of this machine in the form of SANDGATE_RUNTIME: what is set there, else DOCKER_HOST, else the usual
 * socket.
 */
export function findEngineAddress(env: NodeJS.ProcessEnv): string {
  if (env.SANDGATE_RUNTIME) return env.SANDGATE_RUNTIME;
  return (env.DOCKER_HOST || "unix:///var/run/docker.sock").replace(/^(unix|tcp):\/\//, "docker://");
}
