import { isIP, type Socket } from "node:net";
import { checkServerIdentity, connect, createSecureContext, type SecureContextOptions } from "node:tls";
import type { Logger } from "../base/logging.ts";
import { followFiles } from "./followed-files.ts";

/** Both ends are ours, or use a library of today. */
const minVersion = "TLSv1.3";

export interface TlsFiles {
  /** This process's certificate with its chain, and the key of it; neither for a process that only trusts. */
  certFile?: string | undefined;
  keyFile?: string | undefined;
  /** The certificates that those of the other processes were signed with. The system's unless set. */
  caFile?: string | undefined;
}

/** TLS between processes. Connections that are open keep what they were opened with. */
export interface Tls {
  /** What a service serves with; undefined for a process that has no certificate. */
  server(): SecureContextOptions | undefined;
  /** Called when the files have changed. */
  onChange(listener: () => void): void;
  /**
   * Opens a connection for HTTP/2 to an address of a host, whose certificate must name the host and be signed by who is trusted.
   * This process's own certificate is shown where one is asked for.
   */
  connect(to: { host: string; address: string; port: number }): Socket;
  close(): void;
}

/**
 * TLS by the certificates in these files (PEM), which are read again when they change. Throws when they can't be used, as when
 * the key is another certificate's.
 */
export async function openTls(o: TlsFiles & { logger: Logger; rereadEveryMs?: number }): Promise<Tls> {
  const { certFile, keyFile, caFile, logger } = o;
  const named = Object.entries({ cert: certFile, key: keyFile, ca: caFile }).flatMap(([part, file]) =>
    file === undefined ? [] : [{ part, file }],
  );
  const listeners: (() => void)[] = [];
  const followed = await followFiles({
    what: "certificates",
    files: named.map(({ file }) => file),
    logger,
    parse(texts): SecureContextOptions {
      const options = {
        minVersion,
        ...Object.fromEntries(named.map(({ part }, index) => [part, texts[index]])),
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
        // An address is no server name (RFC 6066, 3).
        ...(isIP(host) === 0 && { servername: host }),
        checkServerIdentity: (_, certificate) => checkServerIdentity(host, certificate),
      }),
    close: followed.close,
  };
}
