// Loaded by the database's reader thread: nothing heavy is imported here.
import type { Queries, QueryConnection } from "@sandgate/kit/storage/sqlite";
import { type SandboxState, sandboxStates } from "../domain/sandbox.ts";
import { labelKeyOf } from "./label-keys.sqlite.ts";
import { type Row, rowColumns } from "./sandbox-rows.sqlite.ts";
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
  namePrefix?: string | undefined;
}

/** How many sandboxes of one label are gone through for others before other queries get their turn. */
const stepSize = 1000;
/** Labels and prefixes of more sandboxes are not counted further. */
const mostCounted = 1000;

/** A condition on names that begin so: they are of `a` to `z`, digits and dashes, which all come before a brace. */
function namedFrom(prefix: string) {
  return { and: "AND name >= :from AND name < :to", from: prefix, to: `${prefix}{` };
}

function inStates({ states }: List) {
  const wanted = JSON.stringify(states.length > 0 ? states : sandboxStates);
  return { and: "AND state IN (SELECT value FROM json_each(:states))", states: wanted };
}

/** All sandboxes whose names begin so, newest first. Undefined: they are many. */
function positionsByName(db: QueryConnection, workspaceId: string, prefix: string): ListPosition[] | undefined {
  const { and, ...parameters } = namedFrom(prefix);
  const found = db.all<{ created_at: number; id: string }>(
    `SELECT created_at, id FROM sandboxes WHERE workspace_id = :workspaceId ${and} LIMIT :limit`,
    { workspaceId, ...parameters, limit: mostCounted },
  );
  if (found.length === mostCounted) return undefined;
  const newestFirst = found.toSorted((one, other) =>
    one.created_at === other.created_at ? (one.id < other.id ? 1 : -1) : other.created_at - one.created_at,
  );
  return newestFirst.map((row) => ({ createdAt: new Date(row.created_at), id: row.id }));
}

function isAfter({ createdAt, id }: ListPosition, after: ListPosition): boolean {
  return createdAt < after.createdAt || (createdAt.getTime() === after.createdAt.getTime() && id < after.id);
}

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
    const named = list.namePrefix ? positionsByName(db, list.workspaceId, list.namePrefix) : undefined;
    const others = (named ? list.labels : list.labels.slice(1)).map((label) => labelKeyOf(list.workspaceId, label));
    const readPositions = (after: ListPosition | undefined, size: number) =>
      named
        ? named.filter((position) => !after || isAfter(position, after)).slice(0, size)
        : listPositions(db, list, after, size);
    const { and, ...parameters } = named ? inStates(list) : list.namePrefix ? namedFrom(list.namePrefix) : { and: "" };
    const rows: Row[] = [];
    let position = after;
    let seen = 0;
    // Most lists end with the first chunk. Chunks grow while the others that match are looked for in vain.
    for (let size = limit; size > 0; size = Math.min(2 * size, stepSize - seen)) {
      const positions = readPositions(position, size);
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
        const row = db.get<Row>(`SELECT ${rowColumns} FROM sandboxes WHERE id = :id ${and}`, { id, ...parameters });
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
        `SELECT ${rowColumns}, created_at, id FROM sandboxes WHERE ${conditions.join(" AND ")} AND state = :state${index}`,
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
