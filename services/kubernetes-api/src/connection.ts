import type { RequestOptions } from "node:https";
import { isDeepStrictEqual } from "node:util";
import { HttpMethod, KubeConfig, RequestContext } from "@kubernetes/client-node";
import { Agent, type Dispatcher } from "undici";

/** How long a connection that nothing goes over is kept; the server itself would keep it for three minutes. */
const idleMs = 60_000;
/** How often credentials are read again: tokens of service accounts and certificates change while the process runs. */
const credentialsForMs = 60_000;

/** What a request is sent with. */
export interface Credentials {
  readonly headers: Readonly<Record<string, string>>;
  readonly dispatcher: Dispatcher;
  /** The same for Node's own client, as a WebSocket needs it. */
  readonly tls: RequestOptions;
}

/**
 * The way to one API server. Connections are kept between requests, which the library's own clients don't do: each of
 * their calls is a connection and a TLS handshake of its own. They also go through `fetch`, which costs twice the
 * processor time.
 */
export interface Connection {
  readonly server: string;
  credentials(): Promise<Credentials>;
  /** The server refused these credentials: reads the kubeconfig or the token again, unless that was done meanwhile. */
  renew(refused: Promise<Credentials>): void;
  close(): Promise<void>;
}

type DispatcherOptions = ReturnType<KubeConfig["createDispatcherOptions"]>;

/** Opens the way to an address as SANDGATE_RUNTIME has it. Throws an Error that says what is wrong with it. */
export function openConnection(address: string): Connection {
  let config = readConfig(address);
  const server = config.getCurrentCluster()?.server ?? "";
  let known: Promise<Credentials> | undefined;
  let connections: { options: DispatcherOptions; dispatcher: Dispatcher } | undefined;
  let knownUntil = 0;

  function credentials(): Promise<Credentials> {
    if (known && performance.now() < knownUntil) return known;
    known = readCredentials();
    knownUntil = performance.now() + credentialsForMs;
    known.catch(() => {
      known = undefined;
    });
    return known;
  }

  async function readCredentials(): Promise<Credentials> {
    const context = new RequestContext(server, HttpMethod.GET);
    await config.applySecurityAuthentication(context);
    const tls: { defaultPort?: number } = {};
    await config.applyToHTTPSOptions(tls);
    const options = config.createDispatcherOptions(config.getCurrentCluster(), tls);
    // With the same certificates the connections stay: a handshake costs both sides more than a request.
    if (!connections || !isDeepStrictEqual(options, connections.options)) {
      // Requests under way on the earlier connections go on to their end.
      connections?.dispatcher.close().catch(() => {});
      connections = { options, dispatcher: openDispatcher(options) ?? context.getDispatcher() ?? new Agent() };
    }
    return { headers: context.getHeaders(), dispatcher: connections.dispatcher, tls };
  }

  return {
    server,
    credentials,
    renew(refused) {
      if (known !== refused) return;
      config = readConfig(address);
      knownUntil = 0;
    },
    async close() {
      await known?.catch(() => {});
      await connections?.dispatcher.destroy();
    },
  };
}

/** The library's dispatcher, but over HTTP/1.1, whose requests cost both sides less, and kept over a pause. */
function openDispatcher(options: DispatcherOptions): Dispatcher | undefined {
  if (options.type !== "agent") return undefined;
  const { port: _port, timeout: _timeout, ...connect } = options.connect;
  return new Agent({ connect, allowH2: false, keepAliveTimeout: idleMs });
}

/** Reads `kubernetes:` (the service account of the pod that this runs in) or `kubernetes:<path of a kubeconfig>`. */
function readConfig(address: string): KubeConfig {
  const path = address.replace(/^kubernetes:/, "");
  const config = new KubeConfig();
  if (path !== "") loadFile(config, path);
  else if (process.env.KUBERNETES_SERVICE_HOST) config.loadFromCluster();
  else
    throw new Error("SANDGATE_RUNTIME=kubernetes: works in a pod only; elsewhere, name a kubeconfig: kubernetes:/path");
  if (!config.getCurrentCluster()) throw new Error(`${path || "the pod's service account"} names no cluster`);
  return config;
}

function loadFile(config: KubeConfig, path: string): void {
  try {
    config.loadFromFile(path);
  } catch (error) {
    // What a parser throws quotes the file, and so credentials.
    throw error instanceof Error && "syscall" in error ? error : new Error(`${path} is not a kubeconfig`);
  }
}
