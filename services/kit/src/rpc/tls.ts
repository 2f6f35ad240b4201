import { isIP, type Socket } from "node:net";
import { checkServerIdentity, connect, createSecureContext, type SecureContextOptions } from "node:tls";
import type { Logger } from "../base/logging.ts";
import { followFiles } from "./followed-files.ts";

/** Both ends are ours or use a current library. */
const minVersion = "TLSv1.3";

export interface TlsFiles {
  /** This process's certificate with its chain, and its key. A process that only verifies others has neither. */
  certFile?: string | undefined;
  keyFile?: string | undefined;
  /** The authorities that signed the certificates of the other processes; the system's unless set. */
  caFile?: string | undefined;
}

/** TLS between processes. An open connection keeps the certificates with which it was opened. */
export interface Tls {
  /** Returns what a service serves with; undefined for a process without a certificate. */
  server(): SecureContextOptions | undefined;
  /** Calls the listener when the files have changed. */
  onChange(listener: () => void): void;
  /**
   * Opens a connection for HTTP/2 to an address of a host. The certificate there must name the host, and a trusted
   * authority must have signed it. This process shows its own certificate where one is requested.
   */
  connect(to: { host: string; address: string; port: number }): Socket;
  close(): void;
}

/**
 * Opens TLS with the certificates in these files (PEM), which are read again when they change. Throws if they can't be
 * used, for example if the key belongs to another certificate.
 */
export async function openTls(o: TlsFiles & { logger: Logger; rereadEveryMs?: number }): Promise<Tls> {
  const { certFile, keyFile, caFile, logger } = o;
  const named = Object.entries({ cert: certFile, key: keyFile, ca: caFile }).flatMap(([option, file]) =>
    file === undefined ? [] : [{ option, file }],
  );
  const listeners: (() => void)[] = [];
  const followed = await followFiles({
    what: "certificates",
    files: named.map(({ file }) => file),
    logger,
    parse(texts): SecureContextOptions {
      const options = {
        minVersion,
        ...Object.fromEntries(named.map(({ option }, index) => [option, texts[index]])),
      } as const;
      createSecureContext(options);
      return options;
    },
    onChange() {
      for (const listener of listeners) listener();
    },
    rereadEveryMs: o.rereadEveryMs,
  });
  return {
    server: () => (certFile === undefined ? undefined : followed.current()),
    onChange: (listener) => listeners.push(listener),
    connect: ({ host, address, port }) =>
      connect({
        ...followed.current(),
        host: address,
        port,
        ALPNProtocols: ["h2"],
        // A server name must not be an address (RFC 6066, 3).
        ...(isIP(host) === 0 && { servername: host }),
        checkServerIdentity: (_, certificate) => checkServerIdentity(host, certificate),
      }),
    close: followed.close,
  };
}
