import { withoutUndefined } from "./commands.ts";
import { type CallOptions, type CreateOptions, fillPath, type Http, newIdempotencyKey } from "./http.ts";
import { toCamelCase } from "./names.ts";

/** A port of a sandbox that is reached by an address of its own. */
export interface Preview {
  id: string;
  port: number;
  url: string;
  public: boolean;
  hostHeader: "preview" | "localhost";
  createdBy: string;
  createdAt: string;
  expiresAt: string;
}

/** A new preview, with the token that opens it: sent as X-Sandgate-Token. It is shown this once. */
export type CreatedPreview = Preview & { token: string };

/** What listens in a sandbox. */
export interface ListeningPort {
  port: number;
  address: string;
  processId: string | null;
}

export interface OpenPortOptions extends CreateOptions {
  /** Anybody who knows the address may use it; only with the token by default. */
  public?: boolean | undefined;
  /** 60 to 86,400; 3,600 by default. */
  ttlSeconds?: number | undefined;
  /** Which Host the server sees; the preview's by default. */
  hostHeader?: "preview" | "localhost" | undefined;
}

/** The ports of a sandbox. */
export class Ports {
  readonly #http: Http;
  readonly #sandboxId: string;

  constructor(http: Http, sandboxId: string) {
    this.#http = http;
    this.#sandboxId = sandboxId;
  }

  /** Opens a preview of a port. */
  open(port: number, o: OpenPortOptions = {}): Promise<CreatedPreview> {
    const { idempotencyKey = newIdempotencyKey(), signal, timeoutMs, ...rest } = o;
    return this.#json("POST", "", { json: { port, ...withoutUndefined(rest) }, idempotencyKey, signal, timeoutMs });
  }

  /** The previews that are open. */
  async list(o: CallOptions = {}): Promise<Preview[]> {
    return (await this.#json<{ previews: Preview[] }>("GET", "", o)).previews;
  }

  get(id: string, o: CallOptions = {}): Promise<Preview> {
    return this.#json("GET", `/${encodeURIComponent(id)}`, o);
  }

  /** Ends a preview. */
  async close(id: string, o: CallOptions = {}): Promise<void> {
    await this.#json("DELETE", `/${encodeURIComponent(id)}`, o);
  }

  /** An address that opens a preview in a browser, once. */
  link(
    id: string,
    o: { ttlSeconds?: number | undefined } & CallOptions = {},
  ): Promise<{ url: string; expiresAt: string }> {
    const { ttlSeconds, ...call } = o;
    const json = withoutUndefined({ ttlSeconds });
    return this.#json("POST", `/${encodeURIComponent(id)}/links`, { json, repeatable: true, ...call });
  }

  /** What listens. */
  async listening(o: CallOptions = {}): Promise<ListeningPort[]> {
    const path = fillPath("/sandboxes/{sandbox_id}/listening", { sandbox_id: this.#sandboxId });
    const read = async (response: Response) => toCamelCase<{ ports: ListeningPort[] }>(await response.json());
    return (await this.#http.read({ method: "GET", path, ...o }, read)).ports;
  }

  #json<T>(
    method: "GET" | "POST" | "DELETE",
    rest: string,
    o: Omit<Parameters<Http["send"]>[0], "method" | "path">,
  ): Promise<T> {
    const path = `${fillPath("/sandboxes/{sandbox_id}/ports", { sandbox_id: this.#sandboxId })}${rest}`;
    return this.#http.read({ method, path, ...o }, async (response) => {
      const text = await response.text();
      return toCamelCase<T>(text === "" ? undefined : JSON.parse(text));
    });
  }
}
