import { setTimeout as delay } from "node:timers/promises";
import type Docker from "dockerode";
import { expectStatus } from "../conformance/client.ts";
import type { Operator } from "../platform/operator.ts";

/** Stops a sandbox, and waits until the engine has removed its container. */
export async function removeSandbox(operator: Operator, engine: Docker, id: string): Promise<void> {
  expectStatus(await operator.delete(`/sandboxes/${id}`, operator.as), 204);
  const isThere = () =>
    engine
      .getContainer(`sandgate-${id}`)
      .inspect()
      .then(
        () => true,
        () => false,
      );
  while (await isThere()) await delay(50);
}

/** Creates so many workspaces of the operator's, and returns their ids. */
export async function openWorkspaces({ as, post }: Operator, count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let i = 0; i < count; i++) ids.push(expectStatus(await post("/workspaces", { name: `bench ${i}` }, as), 201).id);
  return ids;
}
