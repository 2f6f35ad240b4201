import { callEngine, type Engine } from "@sandgate/docker-engine/client";
import { ignoreStatus } from "@sandgate/docker-engine/errors";

/**
 * Version 0.1 had one network for all sandboxes of an engine, and one set of firewall rules. Sandboxes that run there stay
 * until they end, under the rules of this version too.
 */
export const earlier = {
  network: "sandgate",
  bridge: "sandgate0",
  chains: ["SANDGATE-INPUT", "SANDGATE-FORWARD"],
  jumps: [
    { chain: "INPUT", rule: "-i sandgate0 -j SANDGATE-INPUT" },
    { chain: "DOCKER-USER", rule: "-i sandgate0 -j SANDGATE-FORWARD" },
  ],
} as const;

/** Removes that network unless there are sandboxes on it. */
export async function removeEarlierNetwork(engine: Engine): Promise<void> {
  const network = engine.getNetwork(earlier.network);
  const found = await ignoreStatus(
    [404],
    callEngine(() => network.inspect()),
  );
  if (found?.Options?.["com.docker.network.bridge.name"] !== earlier.bridge) return;
  // 403: there are.
  await ignoreStatus(
    [403, 404],
    callEngine((abortSignal) => network.remove({ abortSignal })),
  );
}
