import { callEngine, type Engine } from "@sandgate/docker-engine/client";
import { statusOf } from "@sandgate/docker-engine/errors";
import { DomainError } from "@sandgate/kit/base/domain-error";

/** The network of all sandboxes of an engine, and the host's interface that it is known to the firewall by. */
export const networkName = "sandgate";
export const bridgeName = "sandgate0";

const options = {
  "com.docker.network.bridge.name": bridgeName,
  "com.docker.network.bridge.enable_icc": "false",
  "com.docker.network.bridge.enable_ip_masquerade": "true",
};

/** Makes the network unless it is there; one of that name made otherwise is refused with ISOLATION_UNAVAILABLE. */
export async function ensureNetwork(engine: Engine): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      const found = await callEngine(() => engine.getNetwork(networkName).inspect());
      return requireOurs(found);
    } catch (error) {
      if (statusOf(error) !== 404) throw error;
    }
    try {
      await engine.createNetwork({
        Name: networkName,
        CheckDuplicate: true,
        Driver: "bridge",
        EnableIPv6: false,
        Options: options,
      });
    } catch (error) {
      // Two that make it at once: the loser is told of the name, or of the bridge, and looks again.
      if (attempt === 5 || statusOf(error) === undefined) throw error;
    }
  }
}

function requireOurs(found: {
  Driver: string;
  EnableIPv6: boolean;
  Options?: Record<string, string> | undefined;
}): void {
  const differs = Object.entries(options).find(([name, value]) => found.Options?.[name] !== value)?.[0];
  if (found.Driver === "bridge" && !found.EnableIPv6 && differs === undefined) return;
  throw new DomainError(
    "ISOLATION_UNAVAILABLE",
    `The engine has a network "${networkName}" that was not made for sandboxes (${differs ?? "its driver or IPv6"} differs).`,
    { hint: `Remove it with "docker network rm ${networkName}"; it is made again.` },
  );
}
