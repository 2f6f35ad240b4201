// Loaded by the database's reader thread: nothing heavy is imported here.
import type { Queries, QueryConnection } from "@sandgate/kit/storage/sqlite";
import { type SandboxState, sandboxStates } from "../domain/sandbox.ts";
import type { InstallationFilter, ListPosition } from "./store.ts";

/** A sandbox as it is stored. */
export interface Row {
  record: string;
  cleaned_at: number | null;
}

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

/** Reads each state's part of an index, which has it in the list's order, and merges them. */
function listPlaces(
  db: QueryConnection,
  { workspaceId, states, labels: [label] }: List,
  after: ListPosition | undefined,
  limit: number,
): ListPosition[] {
  const place = { workspaceId, createdAt: after?.createdAt ?? Number.MAX_SAFE_INTEGER, id: after?.id ?? "", limit };
  const wanted = states.length === 0 && label ? sandboxStates : [...new Set(states)];
  const from = label
    ? `SELECT created_at, sandbox_id AS id FROM labels
       WHERE workspace_id = :workspaceId AND name = :name AND value = :value AND (created_at, sandbox_id) < (:createdAt, :id)`
    : "SELECT created_at, id FROM sandboxes WHERE workspace_id = :workspaceId AND (created_at, id) < (:createdAt, :id)";
  const parts = wanted.length === 0 ? [from] : wanted.map((_, index) => `${from} AND state = :state${index}`);
  return db
    .all<{ created_at: number; id: string }>(
      `${parts.join(" UNION ALL ")} ORDER BY created_at DESC, id DESC LIMIT :limit`,
      { ...place, ...label, ...Object.fromEntries(wanted.map((state, index) => [`state${index}`, state])) },
    )
    .map((row) => ({ createdAt: new Date(row.created_at), id: row.id }));
}

export const queries = {
  /**
   * The next sandboxes of a list, newest first. With `next` there may be more of them from there on, although these are fewer
   * than `limit`.
   */
  list(
    db: QueryConnection,
    list: List,
    after: ListPosition | undefined,
    limit: number,
  ): { rows: Row[]; next: ListPosition | undefined } {
    const others = list.labels.slice(1);
    const rows: Row[] = [];
    let place = after;
    let seen = 0;
    // Most lists end with the first part. It grows while others are looked for in vain.
    for (let size = limit; size > 0; size = Math.min(2 * size, stepSize - seen)) {
      const places = listPlaces(db, list, place, size);
      for (const { id } of places) {
        const hasOthers = others.every(({ name, value }) =>
          db.get("SELECT 1 FROM labels WHERE sandbox_id = ? AND name = ? AND value = ?", id, name, value),
        );
        if (!hasOthers) continue;
        const row = db.get<Row>("SELECT record, cleaned_at FROM sandboxes WHERE id = ?", id);
        if (row) rows.push(row);
        if (rows.length === limit) return { rows, next: undefined };
      }
      if (places.length < size) return { rows, next: undefined };
      seen += places.length;
      place = places.at(-1);
    }
    return { rows, next: place };
  },

  /** Sandboxes of all workspaces: each state's part of an index has them in this order. */
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
    const parts = wanted.map(
      (_, index) =>
        `SELECT record, cleaned_at, created_at, id FROM sandboxes WHERE ${conditions.join(" AND ")} AND state = :state${index}`,
    );
    return db.all<Row>(`${parts.join(" UNION ALL ")} ORDER BY created_at DESC, id DESC LIMIT :limit`, {
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
           SELECT 1 FROM labels WHERE workspace_id = ? AND name = ? AND value = ?
             AND state IN (SELECT value FROM json_each(?)) LIMIT ?)`,
        workspaceId,
        label.name,
        label.value,
        JSON.stringify(states.length === 0 ? sandboxStates : states),
        mostCounted,
      );
      return { label, sandboxes: row?.sandboxes ?? 0 };
    });
    return counted.sort((one, other) => one.sandboxes - other.sandboxes).map(({ label }) => label);
  },
} satisfies Queries;
