// Loaded by the database's reader thread: nothing heavy is imported here.
import type { Queries, QueryConnection } from "@sandgate/kit/storage/sqlite";
import { type SandboxState, sandboxStates } from "../domain/sandbox.ts";
import { labelKeyOf } from "./label-keys.sqlite.ts";
import type { Row } from "./sandbox-rows.sqlite.ts";
import type { InstallationFilter, ListPosition } from "./sandboxes.ts";

interface Label {
  name: string;
  value: string;
}

interface List {
  workspaceId: string;
  /** Empty: every state. */
  states: readonly SandboxState[];
  /** The sandboxes of the first are gone through, so it should be the rarest. */
  labels: readonly Label[];
}

/** How many sandboxes of one label are gone through for others before other queries get their turn. */
const stepSize = 1000;
/** Labels of more sandboxes are not counted further. */
const mostCounted = 1000;

/** Reads each state's section of an index, which has it in the list's order, and merges them. */
function listPositions(
  db: QueryConnection,
  { workspaceId, states, labels: [label] }: List,
  after: ListPosition | undefined,
  limit: number,
): ListPosition[] {
  const from = { createdAt: after?.createdAt ?? Number.MAX_SAFE_INTEGER, id: after?.id ?? "", limit };
  const wanted = states.length === 0 && label ? sandboxStates : [...new Set(states)];
  const select = label
    ? "SELECT created_at, sandbox_id AS id FROM label_keys WHERE label = :label AND (created_at, sandbox_id) < (:createdAt, :id)"
    : "SELECT created_at, id FROM sandboxes WHERE workspace_id = :workspaceId AND (created_at, id) < (:createdAt, :id)";
  const selects = wanted.length === 0 ? [select] : wanted.map((_, index) => `${select} AND state = :state${index}`);
  return db
    .all<{ created_at: number; id: string }>(
      `${selects.join(" UNION ALL ")} ORDER BY created_at DESC, id DESC LIMIT :limit`,
      {
        ...from,
        ...(label ? { label: labelKeyOf(workspaceId, label) } : { workspaceId }),
        ...Object.fromEntries(wanted.map((state, index) => [`state${index}`, state])),
      },
    )
    .map((row) => ({ createdAt: new Date(row.created_at), id: row.id }));
}

export const queries = {
  /**
   * The next sandboxes of a list, newest first. With `next` there may be more of them from there on, although these are
   * fewer than `limit`.
   */
  list(
    db: QueryConnection,
    list: List,
    after: ListPosition | undefined,
    limit: number,
  ): { rows: Row[]; next: ListPosition | undefined } {
    const others = list.labels.slice(1).map((label) => labelKeyOf(list.workspaceId, label));
    const rows: Row[] = [];
    let position = after;
    let seen = 0;
    // Most lists end with the first chunk. Chunks grow while the other labels are looked for in vain.
    for (let size = limit; size > 0; size = Math.min(2 * size, stepSize - seen)) {
      const positions = listPositions(db, list, position, size);
      for (const { id, createdAt } of positions) {
        // In whatever state: it may have changed since the position was read.
        const hasOthers = others.every((label) =>
          db.get(
            `SELECT 1 FROM label_keys WHERE label = ? AND state IN (SELECT value FROM json_each(?))
               AND created_at = ? AND sandbox_id = ?`,
            label,
            JSON.stringify(sandboxStates),
            createdAt,
            id,
          ),
        );
        if (!hasOthers) continue;
        const row = db.get<Row>("SELECT record, cleaned_at FROM sandboxes WHERE id = ?", id);
        if (row) rows.push(row);
        if (rows.length === limit) return { rows, next: undefined };
      }
      if (positions.length < size) return { rows, next: undefined };
      seen += positions.length;
      position = positions.at(-1);
    }
    return { rows, next: position };
  },

  /** Sandboxes of all workspaces: each state's section of an index has them in this order. */
  listAll(
    db: QueryConnection,
    { states, workspaceId, createdBy }: InstallationFilter,
    after: ListPosition | undefined,
    limit: number,
  ): Row[] {
    const wanted = states.length === 0 ? sandboxStates : [...new Set(states)];
    const conditions = [
      ...(createdBy === undefined ? [] : ["record ->> '$.createdBy' = :createdBy"]),
      ...(workspaceId === undefined ? [] : ["workspace_id = :workspaceId"]),
      "(created_at, id) < (:createdAt, :id)",
    ];
    const selects = wanted.map(
      (_, index) =>
        `SELECT record, cleaned_at, created_at, id FROM sandboxes WHERE ${conditions.join(" AND ")} AND state = :state${index}`,
    );
    return db.all<Row>(`${selects.join(" UNION ALL ")} ORDER BY created_at DESC, id DESC LIMIT :limit`, {
      createdAt: after?.createdAt ?? Number.MAX_SAFE_INTEGER,
      id: after?.id ?? "",
      limit,
      ...(createdBy !== undefined && { createdBy }),
      ...(workspaceId !== undefined && { workspaceId }),
      ...Object.fromEntries(wanted.map((state, index) => [`state${index}`, state])),
    });
  },

  /** The labels, those of the fewest sandboxes first. */
  orderByRarity(db: QueryConnection, { workspaceId, states, labels }: List): Label[] {
    const counted = labels.map((label) => {
      const row = db.get<{ sandboxes: number }>(
        `SELECT count(*) AS sandboxes FROM (
           SELECT 1 FROM label_keys WHERE label = ? AND state IN (SELECT value FROM json_each(?)) LIMIT ?)`,
        labelKeyOf(workspaceId, label),
        JSON.stringify(states.length === 0 ? sandboxStates : states),
        mostCounted,
      );
      return { label, sandboxes: row?.sandboxes ?? 0 };
    });
    return counted.sort((one, other) => one.sandboxes - other.sandboxes).map(({ label }) => label);
  },
} satisfies Queries;
