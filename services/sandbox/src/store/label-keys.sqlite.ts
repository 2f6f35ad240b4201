// Loaded by the database's writer and reader threads too: nothing heavy is imported here.
import { hashTexts } from "@sandgate/kit/storage/text-hash";
import type { Sandbox } from "../domain/sandbox.ts";

/** By what the table `label_keys` has a label of a workspace's sandboxes. */
export function labelKeyOf(workspaceId: string, { name, value }: { name: string; value: string }): Uint8Array {
  return hashTexts(workspaceId, name, value);
}

export function labelKeysOf({ workspaceId, labels }: Sandbox): Uint8Array[] {
  return Object.entries(labels).map(([name, value]) => labelKeyOf(workspaceId, { name, value }));
}
