import ipaddr from "ipaddr.js";

/** How a key stands with its limit after a request. */
export interface Standing {
  limit: number;
  remaining: number;
  /** Whole seconds, at least 1, until the count starts anew. */
  resetSeconds: number;
  /** False: this request was one too many. */
  allowed: boolean;
}

/** Counts requests per key in windows of a minute. A limit of 0 is none. */
export interface RateLimiter {
  /** Counts a request. */
  take(key: string, limit: number): Standing | Promise<Standing>;
  /** Looks without counting. */
  peek(key: string, limit: number): Standing | Promise<Standing>;
}

const windowMs = 60_000;
/** Beyond these the oldest are forgotten, so that a flood of addresses can't fill the memory. */
const maxKeys = 200_000;

/** A limiter that counts in this process alone. A key's minute begins with its first request. */
export function createLocalRateLimiter(now: () => number = () => performance.now()): RateLimiter {
  // The windows are all as long, so the map's order is the order in which they end.
  const windows = new Map<string, { used: number; endsAt: number }>();

  function dropEnded(at: number): void {
    for (const [key, window] of windows) {
      if (window.endsAt > at && windows.size <= maxKeys) return;
      windows.delete(key);
    }
  }

  function count(key: string, limit: number, requests: number): Standing {
    const at = now();
    let window = windows.get(key);
    if (!window || window.endsAt <= at) {
      window = { used: 0, endsAt: at + windowMs };
      if (requests > 0) {
        dropEnded(at);
        windows.delete(key);
        windows.set(key, window);
      }
    }
    const allowed = window.used + requests <= limit;
    if (allowed) window.used += requests;
    return {
      limit,
      remaining: limit - window.used,
      resetSeconds: Math.max(1, Math.ceil((window.endsAt - at) / 1000)),
      allowed,
    };
  }

  return {
    take: (key, limit) => count(key, limit, 1),
    peek: (key, limit) => count(key, limit, 0),
  };
}

/**
 * What counts as one address: an IPv4 address, or an IPv6 network of 64 bits, which one host can have all of. Some proxies
 * forward an address with its port, which any client could change; what is no address at all counts as one.
 */
export function networkOf(address: string): string {
  const [, bracketed, plain] = /^(?:\[(.+)\]|(\d+(?:\.\d+){3}))(?::\d+)?$/.exec(address) ?? [];
  const host = bracketed ?? plain ?? address;
  if (!ipaddr.isValid(host)) return "unknown";
  const parsed = ipaddr.process(host);
  if (parsed.kind() === "ipv4") return parsed.toString();
  return `${Buffer.from(parsed.toByteArray().slice(0, 8)).toString("hex")}::/64`;
}
