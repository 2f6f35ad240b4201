import { callEngine, type Engine } from "@sandgate/docker-engine/client";
import { statusOf } from "@sandgate/docker-engine/errors";
import { DomainError } from "@sandgate/kit/base/domain-error";

/** The network of all of an engine's sandboxes, and its bridge on the host, which the firewall rules name. */
export const networkName = "sandgate";
export const bridgeName = "sandgate0";

const creationAttempts = 5;

const options = {
  "com.docker.network.bridge.name": bridgeName,
  "com.docker.network.bridge.enable_icc": "false",
  "com.docker.network.bridge.enable_ip_masquerade": "true",
};

/** Creates the network unless it exists. Throws ISOLATION_UNAVAILABLE for one of that name with other options. */
export async function ensureNetwork(engine: Engine): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      const found = await callEngine(() => engine.getNetwork(networkName).inspect());
      return requireOptions(found);
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
      // Of two concurrent creations the engine refuses one, for the name or the bridge; it then finds the other's.
      if (attempt === creationAttempts || statusOf(error) === undefined) throw error;
    }
  }
}

function requireOptions(found: {
  Driver: string;
  EnableIPv6: boolean;
  Options?: Record<string, string> | undefined;
}): void {
  const differs = Object.entries(options).find(([name, value]) => found.Options?.[name] !== value)?.[0];
  if (found.Driver === "bridge" && !found.EnableIPv6 && differs === undefined) return;
  throw new DomainError(
    "ISOLATION_UNAVAILABLE",
    `The engine has a network "${networkName}" that was not created for sandboxes (${differs ?? "its driver or IPv6"} differs).`,
    { hint: `Remove it with "docker network rm ${networkName}"; it is created again.` },
  );
}
